//! Writes the raw data as one Parquet file: a row for each sample, units in the names of the columns, the rest as metadata.
//!
//! | column | content |
//! |---|---|
//! | `round` | number, from 0 on; each round starts every level anew |
//! | `level`, `load`, `metric` | names |
//! | `at_unix_s` | the host's wall clock before the record |
//! | `calls` | number of calls in the sample |
//! | `asked_ns` | requested length of each call, for sleeps; otherwise 0 |
//! | `elapsed_ticks` | time of all calls together, by the time-stamp counter |
//! | `mean_ns` | mean time of a call |
//!
//! The file's metadata has `lorentz_study_format`, `study`, `settings`, `environment` and `left_out`, the last three as
//! JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::journal::{Journal, StudyRecord};
use crate::protocol::Sample;
use crate::{Level, Named, StudyError};

/// Version of the file's format. A change of columns or metadata changes it.
pub const FORMAT: &str = "1";

const SCHEMA: &str = "message study {
    REQUIRED INT32 round;
    REQUIRED BYTE_ARRAY level (UTF8);
    REQUIRED BYTE_ARRAY load (UTF8);
    REQUIRED BYTE_ARRAY metric (UTF8);
    REQUIRED DOUBLE at_unix_s;
    REQUIRED INT64 calls;
    REQUIRED INT64 asked_ns;
    REQUIRED INT64 elapsed_ticks;
    REQUIRED DOUBLE mean_ns;
}";

type Row<'a> = (&'a StudyRecord, &'a Sample);

/// Writes all records of `journal` to `path`. `left_out` has the reason for each level that was not measured.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(
    path: &Path,
    journal: &Journal,
    left_out: &BTreeMap<Level, String>,
    steal_s: f64,
) -> Result<(), StudyError> {
    let file = File::create(path).map_err(|error| StudyError::at(path, error))?;
    write_to(file, journal, left_out, steal_s)
        .map_err(|error| StudyError::Table { path: path.to_path_buf(), error })
}

fn write_to(
    file: File,
    journal: &Journal,
    left_out: &BTreeMap<Level, String>,
    steal_s: f64,
) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let metadata = metadata(journal, left_out, steal_s);
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let records = journal.records.iter();
    let rows: Vec<Row> = records
        .flat_map(|record| record.samples.iter().map(move |sample| (record, sample)))
        .collect();
    columns(&mut group, &rows, journal.begin.environment.tsc_hertz as f64)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn metadata(journal: &Journal, left_out: &BTreeMap<Level, String>, steal_s: f64) -> Vec<KeyValue> {
    let settings = &journal.begin.settings;
    let mut environment = serde_json::json!(journal.begin.environment);
    environment["steal_s"] = serde_json::json!(steal_s);
    let words: BTreeMap<&str, &str> =
        left_out.iter().map(|(level, why)| (level.name(), why.as_str())).collect();
    let pair = |key: &str, value: String| KeyValue::new(key.to_string(), value);
    vec![
        pair("lorentz_study_format", FORMAT.to_string()),
        pair("study", settings.study.name().to_string()),
        pair("settings", serde_json::json!(settings).to_string()),
        pair("environment", environment.to_string()),
        pair("left_out", serde_json::json!(words).to_string()),
    ]
}

fn columns(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[Row],
    hertz: f64,
) -> Result<(), ParquetError> {
    let mean_ns =
        |sample: &Sample| sample.elapsed.0 as f64 * 1e9 / hertz / sample.calls.max(1) as f64;
    let texts = |of: fn(&StudyRecord) -> &'static str| -> Vec<ByteArray> {
        rows.iter().map(|(record, _)| of(record).into()).collect()
    };
    let numbers = |of: fn(&Sample) -> i64| -> Vec<i64> {
        rows.iter().map(|(_, sample)| of(sample)).collect()
    };
    let rounds: Vec<i32> = rows.iter().map(|(record, _)| record.key.round as i32).collect();
    let at: Vec<f64> = rows.iter().map(|(record, _)| record.at_unix_s).collect();
    let means: Vec<f64> = rows.iter().map(|(_, sample)| mean_ns(sample)).collect();
    column::<Int32Type>(group, &rounds)?;
    column::<ByteArrayType>(group, &texts(|record| record.key.level.name()))?;
    column::<ByteArrayType>(group, &texts(|record| record.load.name()))?;
    column::<ByteArrayType>(group, &texts(|record| record.key.metric.name()))?;
    column::<DoubleType>(group, &at)?;
    column::<Int64Type>(group, &numbers(|sample| sample.calls as i64))?;
    column::<Int64Type>(group, &numbers(|sample| sample.asked.0))?;
    column::<Int64Type>(group, &numbers(|sample| sample.elapsed.0))?;
    column::<DoubleType>(group, &means)
}

fn column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.expect("as many columns as the schema has");
    writer.typed::<T>().write_batch(values, None, None)?;
    writer.close()
}
