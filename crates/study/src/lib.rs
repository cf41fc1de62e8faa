//! Measures the cost of virtual time, repeatably. It writes raw data and does not judge them; `lorentz report` does.
//!
//! - A [`Study`] has [`Metric`]s: the 15 of *The Cost of Time Virtualization in Linux Containers* (Merino & Otero 2022),
//!   the two benchmarks of the time namespace patch set, and the timer cost and sleep miss time of *Impact of Modern
//!   Virtualization Methods on Timing Precision* (Kirova et al. 2019), the last under three [`Load`]s.
//! - A study measures each metric at [`Level`]s, from the bare host to containers of other makers. At each start of a
//!   level, the measuring program proves by its clocks or namespaces that it is there. If the proof fails, the study stops.
//! - The measuring program is `lorentz-probe`, the same at every level. Its stopwatch is the processor's time-stamp
//!   counter, which no level here makes virtual. Each round starts every level anew. Within a round the levels take turns
//!   metric by metric, in changing order: drift of the machine hits all alike.
//! - The study writes each record at once to a [`journal`], and an interrupted study goes on from it. At the end [`table`]
//!   writes one Parquet file with a row for each sample.
//!
//! ```
//! use lorentz_study::{Effort, Level, StudySettings, Study};
//! let settings = StudySettings::new(Study::Clocks, Effort::Quick);
//! assert_eq!(settings.metrics.len(), 16); // the paper's, and the harness itself
//! assert!(settings.levels.contains(&Level::Lorentz));
//! ```

pub mod environment;
mod error;
pub mod journal;
mod last_words;
mod level;
mod load;
mod metric;
mod named;
mod probe;
pub mod protocol;
mod root_file_system;
mod run;
mod settings;
mod study;
pub mod table;

pub use error::StudyError;
pub use level::{Level, Tools};
pub use load::Load;
pub use metric::{Metric, Unit};
pub use named::Named;
pub use run::{run, StudyOutcome, StudyProgress, STOP};
pub use settings::{Effort, SettingsError, StudySettings};
pub use study::Study;
