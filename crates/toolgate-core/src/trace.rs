//! The hash chain of a trace: what a record's line looks like, and what verifying a file finds.
//!
//! Each record is one line of JSON whose last member is `hash`: the SHA-256 of a domain, the previous record's hash and the
//! line's bytes before that member. A chain that starts in a file with records that carry no hash starts from the SHA-256 of all
//! bytes before it. Bytes that a crash tore stay in the file, and a `repair` record covers them.

use sha2::{Digest as _, Sha256};

use crate::digest::hex;

/// Sets these hashes apart from every other use of SHA-256.
const DOMAIN: &[u8] = b"toolgate-trace-v1\0";

/// What stands between a line's content and its hash.
const HASH_MEMBER: &str = ",\"hash\":\"";

/// A SHA-256 in hex has this many characters.
const HASH_LENGTH: usize = 64;

/// The hash of the record before; what the next record chains to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head([u8; 32]);

impl Head {
    /// The head of an empty file.
    pub fn empty() -> Self {
        Self([0; 32])
    }

    /// The head of a file whose records carry no hashes: the SHA-256 of all its bytes, which may come in parts.
    pub fn of_unchained<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        parts.into_iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }

    /// Reads 64 hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != HASH_LENGTH {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// 64 hex digits.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    fn next(&self, content: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(self.0);
        hasher.update(content);
        Self(hasher.finalize().into())
    }
}

/// Turns a record's JSON object into its line, newline included, and moves the head on.
///
/// `object` is JSON text of a non-empty object without a `hash` or `seq` member.
pub fn seal_line(head: &mut Head, seq: u64, object: &str) -> String {
    let body = object.strip_suffix('}').unwrap_or(object);
    let mut line = String::with_capacity(object.len() + HASH_LENGTH + 40);
    line.push_str(body);
    line.push_str(",\"seq\":");
    line.push_str(&seq.to_string());
    *head = head.next(line.as_bytes());
    line.push_str(HASH_MEMBER);
    line.push_str(&head.to_hex());
    line.push_str("\"}\n");
    line
}

/// Splits a line into what its hash covers and the hash; `None` for a line without one.
fn split_hash(line: &[u8]) -> Option<(&[u8], Head)> {
    let tail = HASH_MEMBER.len() + HASH_LENGTH + 2;
    let content = line.len().checked_sub(tail)?;
    let text = std::str::from_utf8(&line[content..]).ok()?;
    let digits = text.strip_prefix(HASH_MEMBER)?.strip_suffix("\"}")?;
    Some((&line[..content], Head::from_hex(digits)?))
}

/// What is known of a file after all its bytes were read.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Complete records.
    pub records: u64,
    /// The hash of the last record.
    pub head: Head,
    /// The `seq` that the next record gets.
    pub next_seq: u64,
    /// Whether the records carry hashes.
    pub chained: bool,
    /// Whether the last complete record is a seal.
    pub sealed: bool,
    /// Torn bytes that a later record covers.
    pub repaired: u64,
    /// Torn bytes at the end that nothing covers yet: where they begin and how many there are.
    pub torn: Option<(u64, u64)>,
}

/// The first thing in a file that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A record was changed, moved, added or removed.
    #[error("line {line} (seq {seq}): its hash does not follow from the record before it")]
    Hash {
        /// 1-based.
        line: u64,
        /// What the record says of itself, or what was expected.
        seq: u64,
    },
    /// Bytes that are no record and that no repair covers.
    #[error("line {line}: it is no record, and no repair record covers it")]
    Garbage {
        /// 1-based.
        line: u64,
    },
    /// A record without a hash among records with one.
    #[error("line {line}: it carries no hash, though the records before it do")]
    Unchained {
        /// 1-based.
        line: u64,
    },
    /// The file ends before the head that was asked for.
    #[error("the file ends with head {found}, not with {wanted}: records are missing at its end")]
    Head {
        /// The file's own.
        found: String,
        /// The caller's.
        wanted: String,
    },
}

/// Verifies a whole trace file.
///
/// A torn last line passes and is reported, before its repair and after it; a missing seal passes and is reported. A last line that
/// lacks nothing but its newline is a record.
///
/// # Errors
/// The first record that does not hold.
pub fn verify(bytes: &[u8]) -> Result<Verified, Broken> {
    let mut chain = Verified {
        records: 0,
        head: Head::empty(),
        next_seq: 1,
        chained: false,
        sealed: false,
        repaired: 0,
        torn: None,
    };
    let mut garbage: Option<Garbage> = None;
    // What the last hash covers.
    let mut last: &[u8] = &[];
    let mut start = 0;
    let mut number = 0;
    while start < bytes.len() {
        number += 1;
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        let here = Garbage { line: number, start, end };
        let line = &bytes[start..end];
        match split_hash(line) {
            Some((content, hash)) => {
                let seq = seq_of(content).unwrap_or(chain.next_seq);
                let covered = garbage.take_if(|garbage| garbage.is_covered_by(content, bytes));
                // A file of our own that was torn in its first record still starts from nothing.
                let torn_first = covered.is_some() && chain.records == 0;
                if !chain.chained && start > 0 && !torn_first {
                    chain.head = Head::of_unchained([&bytes[..start]]);
                    garbage = None;
                }
                if chain.head.next(content) != hash {
                    return Err(Broken::Hash { line: number, seq });
                }
                if let Some(Garbage { line, .. }) = garbage {
                    return Err(Broken::Garbage { line });
                }
                chain.repaired += covered.map_or(0, |garbage| garbage.length());
                chain.chained = true;
                last = content;
                chain.head = hash;
                chain.records += 1;
                chain.next_seq = seq + 1;
            }
            None if is_object(line) => {
                if chain.chained {
                    return Err(Broken::Unchained { line: number });
                }
                chain.records += 1;
                chain.next_seq += 1;
            }
            // A file without hashes skips broken lines, as its own reader does; among hashes only a repair may follow one.
            None if chain.chained || chain.records == 0 => {
                if let Some(Garbage { line, .. }) = garbage.replace(here) {
                    return Err(Broken::Garbage { line });
                }
            }
            None => garbage = Some(here),
        }
        start = end + 1;
    }
    // Torn bytes at the end, with or without the newline that a repair starts with: the crash may have come between the two.
    match garbage {
        Some(torn) if torn.end + 1 >= bytes.len() => chain.torn = Some((torn.start as u64, torn.length())),
        Some(Garbage { line, .. }) if chain.chained => return Err(Broken::Garbage { line }),
        _ => {}
    }
    chain.sealed = is_event(last, "seal");
    Ok(chain)
}

/// A line that is no record.
struct Garbage {
    line: u64,
    start: usize,
    end: usize,
}

impl Garbage {
    fn length(&self) -> u64 {
        (self.end - self.start) as u64
    }

    /// Whether this record is a repair of exactly those bytes.
    fn is_covered_by(&self, content: &[u8], bytes: &[u8]) -> bool {
        if !is_event(content, "repair") {
            return false;
        }
        let object = [content, b"}"].concat();
        let Ok(record) = serde_json::from_slice::<serde_json::Value>(&object) else { return false };
        let payload = &record["payload"];
        payload["offset"].as_u64() == Some(self.start as u64)
            && payload["bytes"].as_u64() == Some(self.length())
            && payload["sha256"].as_str() == Some(&hex(&Sha256::digest(&bytes[self.start..self.end])))
    }
}

fn is_event(content: &[u8], tag: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Record<'a> {
        #[serde(rename = "type", borrow)]
        kind: &'a str,
        #[serde(borrow)]
        payload: &'a serde_json::value::RawValue,
    }
    // Cheap first: nearly every line is something else.
    let needle = format!("\"type\":\"{tag}\"");
    let Ok(text) = std::str::from_utf8(content) else { return false };
    if !text.contains(&needle) {
        return false;
    }
    let object = format!("{text}}}");
    serde_json::from_str::<Record>(&object)
        .is_ok_and(|record| record.kind == "event_msg" && record.payload.get().starts_with(&format!("{{{needle}")))
}

/// Whether a line is a JSON object. What stands in its texts is not looked at: half a character there makes it no less a record.
fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{') && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

/// The last `seq` member of a record's content.
fn seq_of(content: &[u8]) -> Option<u64> {
    /// The member's name and the most digits that it can have; bytes.
    const LONGEST: usize = 6 + 20;
    let tail = &content[content.len().saturating_sub(LONGEST)..];
    let digits = &tail[memchr::memmem::rfind(tail, b"\"seq\":")? + 6..];
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Checks that a file ends where the caller knows it ended.
///
/// # Errors
/// When it does not.
pub fn check_head(verified: &Verified, wanted: &str) -> Result<(), Broken> {
    let found = verified.head.to_hex();
    if found == wanted { Ok(()) } else { Err(Broken::Head { found, wanted: wanted.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[&str]) -> String {
        let mut head = Head::empty();
        records.iter().enumerate().map(|(i, record)| seal_line(&mut head, i as u64 + 1, record)).collect()
    }

    const A: &str = r#"{"timestamp":"t","type":"model_msg","payload":{"type":"text","role":"user","text":"a"}}"#;
    const SEAL: &str =
        r#"{"timestamp":"t","type":"event_msg","payload":{"type":"seal","records":1,"status":"completed"}}"#;

    #[test]
    fn a_whole_chain_holds_and_knows_its_seal() {
        let found = verify(file(&[A, SEAL]).as_bytes()).unwrap();
        assert_eq!((found.records, found.next_seq, found.chained, found.sealed), (2, 3, true, true));
    }

    #[test]
    fn a_seal_quoted_in_a_text_is_no_seal() {
        let quoted = r#"{"timestamp":"t","type":"model_msg","payload":{"type":"text","role":"user","text":"\"type\":\"seal\""}}"#;
        assert!(!verify(file(&[quoted]).as_bytes()).unwrap().sealed);
    }

    #[test]
    fn every_changed_byte_is_found_at_its_line() {
        let whole = file(&[A, A, SEAL]);
        let second = whole.find('\n').unwrap() + 1;
        let changed = whole[second..].replacen("\"a\"", "\"b\"", 1);
        let changed = format!("{}{changed}", &whole[..second]);
        assert_eq!(verify(changed.as_bytes()).unwrap_err(), Broken::Hash { line: 2, seq: 2 });
    }

    #[test]
    fn removed_inserted_and_swapped_records_are_found() {
        let whole = file(&[A, A, SEAL]);
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for order in [vec![0, 2], vec![0, 0, 1, 2], vec![1, 0, 2]] {
            let changed: String = order.iter().map(|i| lines[*i]).collect();
            assert!(verify(changed.as_bytes()).is_err(), "{order:?}");
        }
        let cut: String = lines[..2].concat();
        let found = verify(cut.as_bytes()).unwrap();
        assert!(!found.sealed, "a removed tail shows only against a known head");
        let head = verify(whole.as_bytes()).unwrap().head.to_hex();
        assert!(check_head(&found, &head).is_err());
    }

    #[test]
    fn a_torn_line_passes_before_and_after_its_repair() {
        let whole = file(&[A, A]);
        let torn_at = whole.find('\n').unwrap() + 1;
        // One byte short of the newline: all of it is there.
        assert_eq!(verify(&whole.as_bytes()[..whole.len() - 1]).unwrap().records, 2);
        for cut in torn_at + 1..whole.len() - 1 {
            let mut bytes = whole.as_bytes()[..cut].to_vec();
            let found = verify(&bytes).unwrap();
            assert_eq!(found.torn, Some((torn_at as u64, (cut - torn_at) as u64)));
            let torn = bytes[torn_at..].to_vec();
            bytes.push(b'\n');
            let again = verify(&bytes).unwrap();
            assert_eq!(again.torn, found.torn, "the newline came, the repair did not");
            let mut head = found.head.clone();
            let repair = format!(
                r#"{{"timestamp":"t","type":"event_msg","payload":{{"type":"repair","offset":{torn_at},"bytes":{},"sha256":"{}"}}}}"#,
                torn.len(),
                hex(&Sha256::digest(&torn))
            );
            bytes.extend_from_slice(seal_line(&mut head, found.next_seq, &repair).as_bytes());
            bytes.extend_from_slice(seal_line(&mut head, found.next_seq + 1, A).as_bytes());
            let repaired = verify(&bytes).unwrap();
            assert_eq!((repaired.records, repaired.repaired, repaired.torn), (3, torn.len() as u64, None));
        }
    }

    #[test]
    fn a_file_torn_in_its_first_record_can_go_on() {
        let torn = &A.as_bytes()[..20];
        let mut bytes = torn.to_vec();
        assert_eq!(verify(&bytes).unwrap().torn, Some((0, 20)));
        bytes.push(b'\n');
        assert_eq!(verify(&bytes).unwrap().torn, Some((0, 20)));
        let mut head = Head::empty();
        let repair = format!(
            r#"{{"timestamp":"t","type":"event_msg","payload":{{"type":"repair","offset":0,"bytes":20,"sha256":"{}"}}}}"#,
            hex(&Sha256::digest(torn))
        );
        bytes.extend_from_slice(seal_line(&mut head, 1, &repair).as_bytes());
        assert_eq!(verify(&bytes).unwrap().repaired, 20);
    }

    #[test]
    fn a_chain_goes_on_behind_records_without_hashes() {
        let plain = format!("{A}\n{A}\n");
        let found = verify(plain.as_bytes()).unwrap();
        assert!(!found.chained);
        let mut head = Head::of_unchained([plain.as_bytes()]);
        let mut bytes = plain.into_bytes();
        bytes.extend_from_slice(seal_line(&mut head, 3, SEAL).as_bytes());
        let found = verify(&bytes).unwrap();
        assert_eq!((found.records, found.chained), (3, true));
        bytes[2] ^= 1;
        assert!(verify(&bytes).is_err(), "the bytes before the chain are covered too");
    }
}
