//! Bytes that nobody would write, for whatever reads bytes of others: a small loop that changes examples at random.
//!
//! A target is one function of bytes that panics where something is wrong, and one line in [`TARGETS`] with examples to begin with.
//! As a test, each target gets the same few thousand inputs every time. `scripts/fuzz.sh SECONDS [NAME]` gives each so long, from
//! another seed each time, and prints the seed. An input that fails is printed as Rust, to become a line of a table.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use toolgate_core::{args, schema::Schema};
use toolgate_runtime::{
    edit::{Edit, difference, plan},
    external::protocol::Reader,
};

/// What reads bytes, and panics where something is wrong.
type Target = fn(&[u8]);

/// What is fuzzed: a name, the function, and examples.
const TARGETS: &[(&str, Target, &[&str])] =
    &[("args", arguments, ARGUMENTS), ("external", external, EXTERNAL), ("edit", edit, EDITS)];

/// Inputs of each target in a test: a second or less for all of them.
const INPUTS: u64 = 3_000;

/// The seed of the tests, so that they do the same every time.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Far more than any input takes on a busy machine; what is slower has found a way to make the program hang.
const LONGEST: Duration = Duration::from_secs(10);

/// Inputs that are kept to be changed further. More would only make the examples rare.
const POOL: usize = 256;

/// The longest input that is made, in bytes.
const MOST_BYTES: usize = 4096;

/// Pieces that mean something to readers of text, of JSON and of lines.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b" ",
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"9223372036854775808",
    b"42.0",
    b"\\u0000",
    b"\\ud800",
    b"\\n",
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    "\u{feff}".as_bytes(),
    "é".as_bytes(),
    "e\u{301}".as_bytes(),
    "😀".as_bytes(),
    "\u{2028}".as_bytes(),
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
];

const ARGUMENTS: &[&str] = &[
    "",
    "null",
    r#"{"cmd":"ls","n":"42","f":" 1.5 ","flag":"true","edits":{"old":"a","new":"b"},"maybe":null}"#,
    r#"{"cmd":"a","edits":"[{\"old\":\"\",\"n\":1}]","o":"{\"x\":1}","closed":{"a":"x","b":1},"other":[1,2]}"#,
    r#""{\"cmd\":\"a\"}""#,
];

/// Arguments that pass the check fit the schema, and checking them once more changes nothing and says nothing.
fn arguments(data: &[u8]) {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        Schema::compile(&json!({
            "type": "object",
            "properties": {
                "cmd": {"type": "string", "minLength": 1},
                "n": {"type": "integer"},
                "f": {"type": "number"},
                "flag": {"type": "boolean"},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}, "n": {"type": "integer"}}}},
                "o": {"type": "object"},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "closed": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false},
            },
            "required": ["cmd"],
            "additionalProperties": false,
        }))
        .unwrap()
    });
    match args::check("tool", schema, &String::from_utf8_lossy(data)) {
        Ok(checked) => {
            let text = serde_json::to_string(&checked.args).unwrap();
            let again = args::check("tool", schema, &text).expect("what passed passes again");
            assert_eq!(again.args, checked.args);
            assert!(again.notes.is_empty(), "{:?}", again.notes);
        }
        Err(reason) => assert!(reason.starts_with("Invalid arguments for tool") && reason.len() < 16 * MOST_BYTES),
    }
}

const EXTERNAL: &[&str] = &[
    "{\"type\":\"text\",\"text\":\"a\\n\"}\n{\"type\":\"end\",\"status\":\"completed\"}\n",
    "{\"type\":\"image\",\"data\":\"aGk=\",\"mime_type\":\"image/png\"}\r\n\n{\"type\":\"note\",\"text\":\"n\"}",
    "{\"type\":\"end\",\"status\":\"failed\",\"reason\":\"r\"}",
];

/// What a program says is read the same in whatever pieces it comes, and an error is short.
fn external(data: &[u8]) {
    let read = |size: usize| {
        let (mut reader, mut text) = (Reader::default(), String::new());
        let mut take = |piece: &str| text.push_str(piece);
        data.chunks(size).try_for_each(|piece| reader.push(piece, &mut take))?;
        reader.finish(&mut take)?;
        Ok::<_, String>((text, reader.into_said()))
    };
    let whole = read(data.len().max(1));
    assert_eq!(whole, read(1));
    assert_eq!(whole, read(7));
    assert!(whole.err().is_none_or(|reason| reason.len() < 2_000));
}

/// A file and pairs of texts, with a byte between them that no text holds.
const EDITS: &[&str] = &[
    "fn f() {\n\treturn 1\n}\n\u{1}    return 1\n}\u{1}    return 2\n    x\n}",
    "a\r\nb  \r\nc\r\n\u{1}a\nb\u{1}A\nb\u{1}c\u{1}d\ne",
    "\u{201c}q\u{201d} cafe\u{301} \u{2014} x\n\u{1}\"q\" caf\u{e9} - \u{1}\"r\" caf\u{e9} -- \u{1}x\u{1}",
    "\u{feff}one\rtwo\r\u{1}one\ntwo\u{1}1\n2",
    "  a\n    b\n  a\n\u{1}\ta\n\t\tb\n\u{1}\tb\n\ta\n",
];

/// Whatever is planned is done within the file and in order, the same each time; and blanks aside, one match of the old text has become
/// the new one and nothing else has changed, as far as that can be said by simpler means.
fn edit(data: &[u8]) {
    let parts: Vec<&[u8]> = data.split(|byte| *byte == 1).take(7).collect();
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let (file, pairs) = (parts[0], parts[1..].chunks_exact(2));
    let edits: Vec<Edit> = pairs.map(|pair| Edit { old: text(pair[0]), new: text(pair[1]), all: false }).collect();
    let planned = plan(file, &edits);
    assert_eq!(planned, plan(file, &edits));
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) => return assert!(error.explained(file, &edits).to_string().len() < 64 * MOST_BYTES),
    };
    let (mut new, mut at) = (Vec::new(), 0);
    for splice in &plan.splices {
        new.extend_from_slice(&file[at..splice.range.start]);
        new.extend_from_slice(&splice.with);
        at = splice.range.end;
    }
    new.extend_from_slice(&file[at..]);
    assert_ne!(new, file);
    difference(file, &plan.splices).shown(100);
    let [Edit { old, new: become_, .. }] = &edits[..] else { return };
    if file.is_ascii() && old.is_ascii() && become_.is_ascii() {
        let solid =
            |bytes: &[u8]| bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<u8>>();
        let (file, new, old, become_) = (solid(file), solid(&new), solid(old.as_bytes()), solid(become_.as_bytes()));
        let mut places = (0..=file.len().saturating_sub(old.len())).filter(|at| file[*at..].starts_with(&old));
        assert!(places.any(|at| [&file[..at], &become_, &file[at + old.len()..]].concat() == new));
    }
}

#[test]
fn no_input_breaks_what_reads_it() {
    for (name, target, examples) in TARGETS {
        let mut inputs = Inputs::new(SEED, examples);
        (0..INPUTS).for_each(|_| attempt(name, *target, inputs.next()));
    }
}

/// What `scripts/fuzz.sh` runs.
#[test]
#[ignore = "takes as long as it is told to"]
fn fuzz_for_a_while() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let seconds = variable("FUZZ_SECONDS").parse().expect("FUZZ_SECONDS says for how long");
    let wanted = variable("FUZZ_TARGET");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = variable("FUZZ_SEED").parse().unwrap_or_else(|_| now());
    let targets: Vec<_> = TARGETS.iter().filter(|(name, ..)| wanted.is_empty() || *name == wanted).collect();
    assert!(
        !targets.is_empty(),
        "there is no target {wanted}; there is {:?}",
        TARGETS.iter().map(|(name, ..)| *name).collect::<Vec<_>>()
    );
    for (name, target, examples) in &targets {
        println!("{name}: FUZZ_SEED={seed}");
        let (mut inputs, mut count, start) = (Inputs::new(seed, examples), 0_u64, Instant::now());
        while start.elapsed() < Duration::from_secs(seconds) {
            attempt(name, *target, inputs.next());
            count += 1;
        }
        println!("{name}: {count} inputs, none failed");
    }
}

/// Runs a target on one input, and says which input it was that failed.
fn attempt(name: &str, target: Target, input: &[u8]) {
    let start = Instant::now();
    let shown = || format!("{name}: b\"{}\"", input.escape_ascii());
    assert!(catch_unwind(AssertUnwindSafe(|| target(input))).is_ok(), "this input fails: {}", shown());
    assert!(start.elapsed() < LONGEST, "this input takes {:?}: {}", start.elapsed(), shown());
}

/// A stream of inputs: the examples, then changes of them and of earlier changes.
struct Inputs {
    /// The state of a xorshift generator; never 0.
    state: u64,
    pool: Vec<Vec<u8>>,
    examples: usize,
    current: Vec<u8>,
}

impl Inputs {
    fn new(seed: u64, examples: &[&str]) -> Self {
        let pool: Vec<Vec<u8>> = examples.iter().map(|example| example.as_bytes().to_vec()).collect();
        Self { state: seed.max(1), examples: pool.len(), pool, current: Vec::new() }
    }

    fn next(&mut self) -> &[u8] {
        let chosen = self.below(self.pool.len());
        self.current = self.pool[chosen].clone();
        for _ in 0..=self.below(6) {
            self.change();
        }
        self.current.truncate(MOST_BYTES);
        if self.pool.len() < POOL {
            self.pool.push(self.current.clone());
        } else if self.below(4) == 0 {
            // The examples themselves stay.
            let place = self.examples + self.below(POOL - self.examples);
            self.pool[place].clone_from(&self.current);
        }
        &self.current
    }

    /// One change: a byte, a piece, a part that is gone, there twice, or another input's.
    fn change(&mut self) {
        let at = self.below(self.current.len() + 1);
        let end = (at + self.below(32)).min(self.current.len());
        match self.below(6) {
            0 if at < self.current.len() => {
                let bit = self.below(8);
                self.current[at] ^= 1 << bit;
            }
            1 => drop(self.current.drain(at..end)),
            2 => {
                let times = 1 + self.below(4);
                let part = self.current[at..end].repeat(times);
                self.insert(at, &part);
            }
            3 => {
                let chosen = self.below(self.pool.len());
                let other = self.pool[chosen].clone();
                let from = self.below(other.len() + 1);
                self.insert(at, &other[from..]);
            }
            4 => {
                let byte = self.below(256) as u8;
                self.insert(at, &[byte]);
            }
            _ => {
                let piece = self.below(PIECES.len());
                self.insert(at, PIECES[piece]);
            }
        }
    }

    fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.current.splice(at..at, bytes.iter().copied());
    }

    /// A number from 0 to below `limit`; 0 where there is none.
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % limit.max(1) as u64) as usize
    }
}
