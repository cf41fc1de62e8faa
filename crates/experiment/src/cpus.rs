//! Processors: lists in text form, and the affinity of tasks.

use std::fmt;
use std::io;
use std::str::FromStr;

use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::ExperimentRefusal;

/// A list of processors, in ascending order. In text: `0`, `1-3`, `0,2-5`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// Returns the processors that the calling process may use.
    ///
    /// # Errors
    ///
    /// The error of sched_getaffinity.
    pub fn usable() -> io::Result<Cpus> {
        let set = sched_getaffinity(Pid::from_raw(0))?;
        Ok(Cpus((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()))
    }

    /// Returns all processors of the list but the first, which stays free for the rest of the machine. A list of one stays as it
    /// is.
    pub fn all_but_first(&self) -> Cpus {
        match self.0.as_slice() {
            [_, rest @ ..] if !rest.is_empty() => Cpus(rest.to_vec()),
            all => Cpus(all.to_vec()),
        }
    }

    /// Returns the processors that are not among `others`; all if none is left.
    pub fn without(&self, others: &Cpus) -> Cpus {
        let left: Vec<usize> =
            self.0.iter().copied().filter(|cpu| !others.0.contains(cpu)).collect();
        Cpus(if left.is_empty() { self.0.clone() } else { left })
    }

    /// The processors' numbers.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }

    /// Returns the first processor that is not among `usable`.
    pub fn first_not_in(&self, usable: &Cpus) -> Option<usize> {
        self.0.iter().copied().find(|cpu| !usable.0.contains(cpu))
    }

    /// Sets the affinity of a thread to this list. 0 means the calling thread.
    ///
    /// # Errors
    ///
    /// The error of sched_setaffinity: the thread has ended or belongs to another user, or a processor does not exist.
    pub fn set_affinity(&self, thread: u32) -> io::Result<()> {
        let mut set = CpuSet::new();
        for cpu in &self.0 {
            set.set(*cpu)?;
        }
        Ok(sched_setaffinity(Pid::from_raw(thread as i32), &set)?)
    }

    /// Returns a list of `count` processors of this list, at least one and at most all: those from `index` on, modulo the length.
    pub fn from_nth(&self, index: usize, count: usize) -> Cpus {
        let count = count.clamp(1, self.0.len());
        let mut some: Vec<usize> =
            (index..index + count).map(|index| self.0[index % self.0.len()]).collect();
        some.sort_unstable();
        Cpus(some)
    }

    /// Checks that a container can run on `parallel` processors of this list at once.
    ///
    /// # Errors
    ///
    /// [`ExperimentRefusal::Parallel`] if that is none, or more than there are.
    pub fn check_parallel(&self, parallel: u32) -> Result<(), ExperimentRefusal> {
        let most = self.0.len();
        match parallel as usize {
            wanted if (1..=most).contains(&wanted) => Ok(()),
            _ => Err(ExperimentRefusal::Parallel(parallel, most, self.to_string())),
        }
    }

    /// Whether a processor is in both lists.
    pub fn overlaps(&self, other: &Cpus) -> bool {
        self.0.iter().any(|cpu| other.0.contains(cpu))
    }
}

/// The text is not a list of processors.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected numbers of processors, such as 1 or 0,2-5")]
pub struct CpusError;

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Cpus, CpusError> {
        let number = |text: &str| {
            text.parse().ok().filter(|cpu: &usize| *cpu < CpuSet::count()).ok_or(CpusError)
        };
        let mut cpus: Vec<usize> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(CpusError);
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Cpus(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let [first, ..] = rest {
            let length = rest.iter().zip(*first..).take_while(|(cpu, next)| **cpu == *next).count();
            let last = first + length - 1;
            match length {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
            rest = &rest[length..];
        }
        Ok(())
    }
}

impl TryFrom<String> for Cpus {
    type Error = CpusError;

    fn try_from(text: String) -> Result<Cpus, CpusError> {
        text.parse()
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> String {
        cpus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, same) in [("0", "0"), ("0,2-5", "0,2-5"), ("3,1,2", "1-3"), ("7,7", "7")] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), same);
        }
        for wrong in ["", "a", "1-", "-1", "3-1", "1,,2", "99999"] {
            assert_eq!(wrong.parse::<Cpus>(), Err(CpusError), "{wrong}");
        }
    }

    #[test]
    fn one_is_left_for_the_rest_where_there_are_two() {
        let two: Cpus = "0-1".parse().unwrap();
        assert_eq!(two.all_but_first().to_string(), "1");
        assert_eq!(two.all_but_first().all_but_first().to_string(), "1");
        assert_eq!(two.without(&two.all_but_first()).to_string(), "0");
        assert_eq!(two.without(&two).to_string(), "0-1");
    }

    #[test]
    fn processors_are_given_in_turn() {
        let all: Cpus = "1-3".parse().unwrap();
        let some = |index, count| all.from_nth(index, count).to_string();
        assert_eq!([some(0, 1), some(4, 1), some(2, 2), some(7, 9)], ["1", "2", "1,3", "1-3"]);
        assert!(all.from_nth(2, 2).overlaps(&all.from_nth(0, 1)));
        assert!(!all.from_nth(1, 2).overlaps(&all.from_nth(0, 1)));
    }
}
