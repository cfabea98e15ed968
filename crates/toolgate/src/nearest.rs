//! Which known word was meant by one that is not known.

/// The known word that was most likely meant; none when nothing is alike.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// With more than a third of its letters wrong it is another word.
    const ALIKE: usize = 3;
    let near = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    near.filter(|(distance, candidate)| *distance <= candidate.len().max(word.len()) / ALIKE)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out, changed or swapped with their neighbour to make one word of the other, whatever
/// the case.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let letters = |word: &str| word.to_lowercase().chars().collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant() {
        let known = ["models", "default_model", "max_turns", "permissions", "env", "deny"];
        for (word, meant) in [
            ("modles", Some("models")),
            ("model", Some("models")),
            ("defaultModel", Some("default_model")),
            ("permission", Some("permissions")),
            ("maxturns", Some("max_turns")),
            ("dney", Some("deny")),
            ("sandbox", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("ab", "ba")), (3, 0, 1));
    }
}
