//! `ps`, `time`, `doctor`: what there is.

use lorentz_container::{doctor, processes, StateDir};
use serde_json::Value;

use crate::args::{Look, LookAt};
use crate::print;
use crate::view::View;

pub fn ps(args: &Look) -> anyhow::Result<i32> {
    let containers = StateDir::open()?.list()?;
    let all = processes::all()?;
    let views: Vec<View> = containers
        .iter()
        .map(|container| View::among(container, &all))
        .collect::<anyhow::Result<_>>()?;
    if args.json {
        let views = views.iter().map(|view| print::clocks_json(view, view.state()));
        print::out_json(&Value::Array(views.collect()))?;
    } else {
        print::out(&print::containers(&views))?;
    }
    Ok(0)
}

pub fn time(args: &LookAt) -> anyhow::Result<i32> {
    let view = View::of(&StateDir::open()?.find(&args.container)?)?;
    if args.json {
        print::out_json(&print::clocks_json(&view, view.clock_state()))?;
    } else {
        print::out(&print::clocks(&view))?;
    }
    Ok(0)
}

/// Its exit status is 1 where nothing can be run for lack of something.
pub fn doctor(args: &Look) -> anyhow::Result<i32> {
    let features = doctor::features();
    if args.json {
        print::out_json(&print::features_json(&features, doctor::NOT_VIRTUAL_YET))?;
    } else {
        print::out(&print::features(&features, doctor::NOT_VIRTUAL_YET))?;
    }
    let lacking = features.iter().any(|feature| feature.needed && !feature.available);
    Ok(lacking.into())
}
