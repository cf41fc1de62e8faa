//! Fuzzing on a stable Rust: feeds mutated inputs to a parser.
//!
//! A fuzz target is an ordinary test that calls [`fuzz`]. It belongs to the crate whose parser it tests, so that it reaches
//! private parsers too. Its name begins with `fuzz_`; `scripts/fuzz` runs all of them in parallel.
//!
//! - `LORENTZ_FUZZ_SECONDS`: how long each target runs. Without it a target makes [`ROUNDS`] inputs, as part of `cargo test`.
//! - `LORENTZ_FUZZ_SEED`: the seed of the random numbers. A target prints its seed; the same seed makes the same inputs.
//!
//! There is no coverage feedback. Instead, an input that the parser accepts joins the inputs from which later ones are made.
//!
//! ```
//! lorentz_fuzz::fuzz("number", &["12", "-7"], &["-", "0"], |bytes| {
//!     let Ok(text) = std::str::from_utf8(bytes) else { return false };
//!     let read = text.parse::<i64>();
//!     if let Ok(number) = read {
//!         assert_eq!(number.to_string().parse(), Ok(number));
//!     }
//!     read.is_ok()
//! });
//! ```

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, process, thread};

use nix::time::{clock_gettime, ClockId};

/// Inputs that a target makes where `LORENTZ_FUZZ_SECONDS` is not set.
pub const ROUNDS: u64 = 2_000;
/// Length of the longest input, bytes.
const MAX_INPUT_LEN: usize = 4096;
/// Inputs from which new ones are made, at most.
const POOL: usize = 512;
/// A parser that computes longer for one input is too slow: the input has [`MAX_INPUT_LEN`] bytes.
const SLOW: Duration = Duration::from_secs(5);

/// Calls [`fuzz`] with the tokens of JSON besides `words`.
///
/// # Panics
///
/// As [`fuzz`].
pub fn fuzz_json(name: &str, seeds: &[&str], words: &[&str], target: impl Fn(&[u8]) -> bool) {
    const TOKENS: [&str; 7] = ["{", "}", "[", "]", ",", ":", "null"];
    fuzz(name, seeds, &[&TOKENS, words].concat(), target);
}

/// Calls `target` with mutations of `seeds`, into which it inserts `words`. `target` returns whether it accepted the input.
/// It must accept each seed, or the mutations would test nothing but refusals.
///
/// # Panics
///
/// Where there is no seed; where `target` refuses a seed or panics, or computes longer than five seconds for one input. The input is
/// then written to a file in the directory for temporary files, and its path is printed.
pub fn fuzz(name: &str, seeds: &[&str], words: &[&str], target: impl Fn(&[u8]) -> bool) {
    let seed = number("LORENTZ_FUZZ_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    });
    let seconds = number("LORENTZ_FUZZ_SECONDS").map(Duration::from_secs);
    println!("fuzz {name}: LORENTZ_FUZZ_SEED={seed}");
    let begun = Instant::now();
    let mut random = Random(seed);
    let mut pool: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let (mut made, mut accepted) = (0_u64, 0_u64);
    for seed in &pool {
        let input = Input { name, bytes: seed.clone() };
        assert!(target(&input.bytes), "{name}: the parser refuses a seed");
    }
    while seconds.map_or(made < ROUNDS, |seconds| begun.elapsed() < seconds) {
        let input = Input { name, bytes: random.input(&pool, words) };
        let started = computed();
        let good = target(&input.bytes);
        let taken = computed() - started;
        assert!(taken < SLOW, "{name}: one input took {taken:?}");
        made += 1;
        if good {
            accepted += 1;
            if pool.len() < POOL {
                pool.push(input.bytes.clone());
            } else {
                // The seeds stay.
                let at = seeds.len() + random.below(POOL - seeds.len());
                pool[at].clone_from(&input.bytes);
            }
        }
    }
    println!("fuzz {name}: {made} inputs, {accepted} accepted, in {:?}", begun.elapsed());
}

/// How long this thread has computed. Targets run at idle priority: they may stand still for seconds while others compute.
fn computed() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("each thread has this clock");
    now.into()
}

/// A variable of the environment that is a number.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// The file to which an input is written that has failed.
fn input_path(name: &str) -> PathBuf {
    env::temp_dir().join(format!("lorentz-fuzz-{name}-{}", process::id()))
}

/// The input under test. Dropped by a panic, it writes itself to a file.
struct Input<'a> {
    name: &'a str,
    bytes: Vec<u8>,
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let path = input_path(self.name);
            // A new file: nobody's link in a directory that all may write to is followed.
            let written = File::create_new(&path).and_then(|mut file| file.write_all(&self.bytes));
            eprintln!("fuzz {}: input {:?}", self.name, String::from_utf8_lossy(&self.bytes));
            eprintln!("fuzz {}: in {}: {written:?}", self.name, path.display());
        }
    }
}

/// Random numbers by splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`, which is not zero.
    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// One of `all`, which are not none.
    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A position in `bytes`, its end included, and one from there to the end.
    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        // Short pieces are changed more often than long ones.
        let most = if self.below(4) == 0 { bytes.len() - start } else { 8 };
        start..bytes.len().min(start + self.below(most + 1))
    }

    /// A new input, by one to six changes of one from `pool`.
    fn input(&mut self, pool: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        let mut bytes = self.one_of(pool).clone();
        for _ in 0..=self.below(6) {
            self.change(&mut bytes, pool, words);
        }
        bytes.truncate(MAX_INPUT_LEN);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
        const NUMBERS: [&str; 12] = [
            "0",
            "-1",
            "1",
            "255",
            "65536",
            "2147483648",
            "4294967295",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551616",
            "1e400",
            "NaN",
        ];
        let range = self.range(bytes);
        match self.below(9) {
            0 => drop(bytes.drain(range)),
            // Again, up to a few dozen times: brackets become deep, lists long.
            1 => {
                let piece = bytes[range.clone()].repeat(1 + self.below(40));
                bytes.splice(range, piece);
            }
            2 => {
                let other = self.one_of(pool);
                let piece = other[self.range(other)].to_vec();
                bytes.splice(range, piece);
            }
            3 | 4 if !words.is_empty() => {
                let word = self.one_of(words).bytes();
                bytes.splice(range.start..range.start, word);
            }
            5 => {
                let text = self.one_of(&NUMBERS).bytes();
                bytes.splice(range, text);
            }
            6 if !bytes.is_empty() => {
                let at = self.below(bytes.len());
                bytes[at] ^= 1 << self.below(8);
            }
            7 => {
                let printable = b' ' + self.below(95) as u8;
                bytes.insert(range.start, printable);
            }
            _ => {
                let any = self.next() as u8;
                bytes.insert(range.start, any);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_in_a_parser_is_found() {
        let find = || {
            fuzz("planted", &["a=1"], &["[", "]"], |bytes| {
                assert!(!bytes.windows(2).any(|pair| pair == b"[["), "found");
                true
            });
        };
        assert!(std::panic::catch_unwind(find).is_err());
        std::fs::remove_file(input_path("planted")).unwrap();
    }

    #[test]
    fn a_target_that_waits_has_not_computed() {
        let started = computed();
        thread::sleep(Duration::from_millis(500));
        assert!(computed() - started < Duration::from_millis(100));
    }

    #[test]
    fn a_seed_makes_the_same_inputs_again() {
        let pool = [b"{\"a\": [1, 2]}".to_vec()];
        let (mut one, mut other) = (Random(7), Random(7));
        for _ in 0..1000 {
            let input = one.input(&pool, &["{"]);
            assert_eq!(input, other.input(&pool, &["{"]));
            assert!(input.len() <= MAX_INPUT_LEN);
        }
    }
}
