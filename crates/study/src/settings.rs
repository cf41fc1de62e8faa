//! Settings of a study: its kind, its levels and metrics, and the amounts.

use serde::{Deserialize, Serialize};

use crate::study::Study;
use crate::{Level, Load, Metric, Unit};

/// Default amounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Minutes.
    Quick,
    /// In between.
    Usual,
    /// As published.
    Full,
}

/// All that decides the records of a study. An interrupted study goes on only with equal settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StudySettings {
    /// The study.
    pub study: Study,
    /// The levels to measure at.
    pub levels: Vec<Level>,
    /// The metrics to measure.
    pub metrics: Vec<Metric>,
    /// The loads to measure under.
    pub loads: Vec<Load>,
    /// Rounds, each of one record for every metric and level.
    pub records: u32,
    /// Calls in a record, which is their mean.
    pub calls: u32,
    /// Sleeps in a record, which is their mean.
    pub sleeps: u32,
    /// Length of a record of reads in a row, ms.
    pub millis: u32,
    /// Samples in a record, for metrics that keep each sample.
    pub samples: u32,
    /// The machine's name, to stand beside other machines in a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// A setting that is not accepted.
#[derive(thiserror::Error, PartialEq, Eq, Debug)]
#[error("{flag} {value}: {why}")]
pub struct SettingsError {
    flag: &'static str,
    value: String,
    why: String,
}

impl Study {
    /// Returns the metrics of the study.
    pub fn metrics(self) -> Vec<Metric> {
        <Metric as crate::Named>::ALL.iter().copied().filter(|one| one.study() == self).collect()
    }

    /// Returns the default levels: all but `Control`. `Before` is among them in the studies of the patch set.
    fn levels(self) -> Vec<Level> {
        let patch_set = matches!(self, Study::Hot | Study::Cold);
        let usual = |level: &Level| match level {
            Level::Before => patch_set,
            Level::Control => false,
            _ => true,
        };
        <Level as crate::Named>::ALL.iter().copied().filter(usual).collect()
    }
}

impl StudySettings {
    /// Returns the default settings of `study`.
    pub fn new(study: Study, effort: Effort) -> StudySettings {
        let of = |quick, usual, full| match effort {
            Effort::Quick => quick,
            Effort::Usual => usual,
            Effort::Full => full,
        };
        let loads = match study {
            Study::Timers => <Load as crate::Named>::ALL.to_vec(),
            _ => vec![Load::Idle],
        };
        let records = match study {
            Study::Clocks => of(20, 50, 200),
            _ => of(5, 10, 20),
        };
        StudySettings {
            study,
            levels: study.levels(),
            metrics: study.metrics(),
            loads,
            records,
            calls: of(10_000, 100_000, 1_000_000),
            sleeps: of(1, 2, 5),
            millis: of(100, 1_000, 3_000),
            samples: of(50, 200, 500),
            platform: None,
        }
    }

    /// Returns the amount of `metric` in a record, in the metric's unit.
    pub fn amount(&self, metric: Metric) -> u32 {
        match metric.unit() {
            Unit::Calls => self.calls,
            Unit::Sleeps => self.sleeps,
            Unit::Millis => self.millis,
            Unit::Samples => self.samples,
        }
    }

    /// Checks that a study can have these settings.
    ///
    /// # Errors
    ///
    /// Names the flag, its value, and the accepted values.
    pub fn check(&self) -> Result<(), SettingsError> {
        let study = crate::Named::name(self.study);
        let name = |one: &Metric| crate::Named::name(*one);
        let own = self.study.metrics();
        if let Some(other) = self.metrics.iter().find(|one| !own.contains(one)) {
            let own: Vec<&str> = own.iter().map(name).collect();
            let why = format!("not one of '{study}'; expected some of {}", own.join(", "));
            return Err(SettingsError { flag: "--metrics", value: name(other).into(), why });
        }
        let names: Vec<&str> = self.levels.iter().map(|one| crate::Named::name(*one)).collect();
        let metrics: Vec<&str> = self.metrics.iter().map(name).collect();
        for (flag, names) in [("--levels", &names), ("--metrics", &metrics)] {
            let is_again = |at: &usize| names[..*at].contains(&names[*at]);
            if let Some(at) = (0..names.len()).find(is_again) {
                let why = "given more than once; expected once".into();
                return Err(SettingsError { flag, value: names[at].into(), why });
            }
        }
        if !self.levels.contains(&Level::Baseline) {
            let why = "expected baseline among them, with which all are compared".into();
            return Err(SettingsError { flag: "--levels", value: names.join(","), why });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_study_is_the_published_one() {
        let settings = StudySettings::new(Study::Clocks, Effort::Full);
        assert_eq!((settings.records, settings.calls), (200, 1_000_000));
        let cold = StudySettings::new(Study::Cold, Effort::Full);
        assert_eq!(cold.records * cold.samples, 10_000);
        assert_eq!(StudySettings::new(Study::Hot, Effort::Full).millis, 3_000);
    }

    #[test]
    fn metrics_of_another_study_are_refused() {
        let mut settings = StudySettings::new(Study::Hot, Effort::Quick);
        assert_eq!(settings.check(), Ok(()));
        settings.metrics = vec![Metric::ClockGetres];
        let words = settings.check().unwrap_err().to_string();
        assert!(words.starts_with("--metrics clock_getres: not one of 'hot'; expected"), "{words}");
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        let mut settings = StudySettings::new(Study::Hot, Effort::Quick);
        settings.levels.push(Level::Baseline);
        let words = settings.check().unwrap_err().to_string();
        assert_eq!(words, "--levels baseline: given more than once; expected once");
    }

    #[test]
    fn nothing_is_compared_with_nothing() {
        let mut settings = StudySettings::new(Study::Hot, Effort::Quick);
        settings.levels = vec![Level::Lorentz];
        let words = settings.check().unwrap_err().to_string();
        assert!(words.starts_with("--levels lorentz: expected baseline"), "{words}");
    }
}
