//! Fuzz targets: requests to an experiment, lists of processors.

use lorentz_fuzz::{fuzz, fuzz_json};

use crate::cpus::Cpus;
use crate::protocol::ExperimentRequest;

#[test]
fn fuzz_request() {
    let seeds = [
        r#"{"do":"add","container":"a","tdf":[10,1],"timeline":1}"#,
        r#"{"do":"status"}"#,
        r#"{"do":"progress","timeline":1,"intervals":{"a":1000}}"#,
        r#"{"do":"step","moves":{"a":1000,"b":2000}}"#,
    ];
    let words = ["\"do\":", "\"progress\"", "\"timeline\":", "\"tdf\":[1,10]"];
    fuzz_json("experiment-request", &seeds, &words, |bytes| {
        let Ok(request) = serde_json::from_slice::<ExperimentRequest>(bytes) else { return false };
        let text = serde_json::to_vec(&request).expect("it was read");
        assert_eq!(
            serde_json::from_slice::<ExperimentRequest>(&text).expect("JSON that was written"),
            request
        );
        true
    });
}

#[test]
fn fuzz_cpus() {
    fuzz("cpus", &["0", "0,2-5", "1-3,7"], &[",", "-", "0-4095", " "], |bytes| {
        let Some(Ok(cpus)) = std::str::from_utf8(bytes).ok().map(str::parse::<Cpus>) else {
            return false;
        };
        assert_eq!(cpus.to_string().parse::<Cpus>().ok(), Some(cpus));
        true
    });
}
