//! Checks of a node's processors, and of whether computing takes it time.

use lorentz_experiment::ComputeTime;
use serde_saphyr::Spanned;

use super::error::{refuse, PlanError};
use crate::topology::{Isolation, Node};

/// A network's choices for nodes that do not say.
pub(super) struct NodeDefaults {
    /// How they are separated from the host.
    pub isolation: Isolation,
    /// Whether computing takes them time.
    pub compute: ComputeTime,
    /// Whether they go forward in rounds.
    pub rounds: bool,
}

/// Checks whether computing takes time. `prefix` begins the error.
pub(super) fn check_compute(
    prefix: &str,
    given: Option<&Spanned<String>>,
    rounds: bool,
) -> Result<Option<ComputeTime>, PlanError> {
    let Some(Spanned { value, defined, .. }) = given else { return Ok(None) };
    let compute = value.parse::<ComputeTime>();
    let compute =
        compute.or_else(|error| refuse(*defined, format!("{prefix}compute: {value}: {error}")))?;
    match compute {
        ComputeTime::None if !rounds => refuse(
            *defined,
            format!("{prefix}compute: none: expected 'rounds: true', without which clocks run by themselves"),
        ),
        compute => Ok(Some(compute)),
    }
}

/// Checks the number of processors of a node. That the machine has as many is seen when the node joins the experiment.
pub(super) fn check_parallel(name: &str, node: &Node, rounds: bool) -> Result<u32, PlanError> {
    let Some(Spanned { value, defined, .. }) = node.parallel.as_ref() else { return Ok(1) };
    match *value {
        0 => refuse(*defined, format!("node {name}: parallel: 0: expected a number from 1 on")),
        1 => Ok(1),
        number if !rounds => refuse(
            *defined,
            format!("node {name}: parallel: {number}: expected 'rounds: true', without which a node runs on all processors"),
        ),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use lorentz_experiment::ComputeTime;

    use crate::check::plan_from_text;

    fn file(keys: &str, of_a: &str) -> String {
        format!("name: l\n{keys}topology: {{nodes: {{a: {{{of_a}}}, b: {{}}}}}}\n")
    }

    #[test]
    fn a_node_has_its_own_choice_or_the_networks() {
        let plan = |keys, of_a| plan_from_text("x.yaml", &file(keys, of_a)).unwrap();
        let compute = |keys, of_a| {
            let nodes = plan(keys, of_a).nodes;
            [nodes[0].compute, nodes[1].compute]
        };
        use ComputeTime::{None, Real};
        assert_eq!(compute("", ""), [Real, Real]);
        assert_eq!(compute("rounds: true\ncompute: none\n", ""), [None, None]);
        assert_eq!(compute("rounds: true\ncompute: none\n", "compute: real"), [Real, None]);
        assert_eq!(compute("rounds: true\n", "compute: none"), [None, Real]);
        assert_eq!(plan("rounds: true\n", "parallel: 2").nodes[0].parallel, 2);
    }

    #[test]
    fn wrong_choices_are_refused_in_their_line() {
        for (keys, of_a, expected) in [
            ("compute: none\n", "", "x.yaml:2:10: compute: none: expected 'rounds: true'"),
            ("compute: some\n", "", "x.yaml:2:10: compute: some: expected 'real' or 'none'"),
            ("", "compute: none", "node a: compute: none: expected 'rounds: true'"),
            ("", "parallel: 2", "node a: parallel: 2: expected 'rounds: true'"),
            ("rounds: true\n", "parallel: 0", "node a: parallel: 0: expected a number from 1 on"),
            ("rounds: true\n", "kind: switch, compute: none", "runs nothing"),
        ] {
            let error = plan_from_text("x.yaml", &file(keys, of_a)).unwrap_err().to_string();
            assert!(error.contains(expected), "{keys}{of_a}: {error}");
        }
    }
}
