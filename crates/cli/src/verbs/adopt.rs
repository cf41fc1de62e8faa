//! `adopt`: a new monitor for programs whose monitor has died.

use lorentz_container::{self as container, AdoptReport, NoNewPrivs, StateDir};

use crate::args::AdoptArgs;
use crate::exit_status::FAILED;
use crate::print;
use crate::view::View;

pub fn adopt(args: &AdoptArgs) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let found = state.find(&args.container)?;
    let no_new_privs = match args.no_new_privs {
        true => NoNewPrivs::Set,
        false => NoNewPrivs::Keep,
    };
    let report = container::adopt(&found, no_new_privs)?;
    if args.json {
        let view = View::of(&state.container(found.name())?)?;
        print::out_json(&print::adopted_json(&view, &report))?;
    } else {
        print::out(&in_words(found.name(), &report))?;
    }
    for refusal in &report.refused {
        eprintln!("lorentz: {refusal}");
    }
    Ok(if report.refused.is_empty() { 0 } else { FAILED })
}

fn in_words(name: &str, report: &AdoptReport) -> String {
    let pids: Vec<String> = report.adopted.iter().map(u32::to_string).collect();
    match (pids.is_empty(), report.refused.is_empty()) {
        (false, _) => format!("{name}: adopted: {}\n", pids.join(" ")),
        (true, true) => format!("{name}: every program has a monitor\n"),
        (true, false) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_was_adopted() {
        let report = |adopted: &[u32]| AdoptReport { adopted: adopted.into(), refused: Vec::new() };
        assert_eq!(in_words("web", &report(&[7, 9])), "web: adopted: 7 9\n");
        assert_eq!(in_words("web", &report(&[])), "web: every program has a monitor\n");
    }
}
