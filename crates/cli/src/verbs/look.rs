//! `ps`, `time`, `doctor`: what there is.

use lorentz_container::{doctor, StateDir};
use serde_json::Value;

use crate::args::{Look, LookAt};
use crate::print;
use crate::view::View;

pub fn ps(args: &Look) -> anyhow::Result<i32> {
    let state = StateDir::open()?;
    let views = View::of_all(&state, &state.list()?)?;
    if args.json {
        let views = views.iter().map(|view| print::clocks_json(view, view.state()));
        print::out_json(&Value::Array(views.collect()))?;
    } else {
        print::out(&print::containers(&views))?;
    }
    Ok(0)
}

pub fn time(args: &LookAt) -> anyhow::Result<i32> {
    let container = StateDir::open()?.find(&args.container)?;
    if args.json {
        let view = View::of(&container)?;
        let pids = view.pids();
        let view = view.with_rewritten(&pids);
        print::out_json(&print::time_json(&view))?;
    } else {
        let view = View::without_processes(&container)?;
        // A container may be called like a number.
        let pid = args.container.parse().ok().filter(|_| view.record.name != args.container);
        print::out(&print::clocks(&view.with_rewritten(pid.as_slice())))?;
    }
    Ok(0)
}

/// Its exit status is 1 where nothing can be run for lack of something.
pub fn doctor(args: &Look) -> anyhow::Result<i32> {
    let features = doctor::features();
    if args.json {
        print::out_json(&print::features_json(&features, &doctor::LIMITS))?;
    } else {
        print::out(&print::features(&features, &doctor::LIMITS))?;
    }
    let lacking = features.iter().any(|feature| feature.needed && !feature.available);
    Ok(lacking.into())
}
