//! State of a container's tasks, summed over one look at them.

use std::time::Duration;

use lorentz_idle::TaskState;

/// State of a container's tasks at one look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerTasks {
    /// A task runs, or is about to run.
    pub awake: bool,
    /// Number of tasks.
    pub count: u32,
    /// How often the tasks have run, summed. Another number means that a task has run since.
    pub runs: u64,
    /// Process ids.
    pub pids: Vec<u32>,
    /// Time that the tasks have run, summed.
    pub ran: Duration,
    /// Time that the tasks have waited for a processor, summed.
    pub waited: Duration,
    /// How often the tasks have gone to sleep, summed; none if the kernel does not count it.
    pub slept: Option<u64>,
}

impl ContainerTasks {
    /// Sums the state of `tasks`.
    pub fn of(tasks: &[TaskState]) -> ContainerTasks {
        let mut state = ContainerTasks::default();
        state.clear();
        tasks.iter().for_each(|task| state.add(task));
        state
    }

    /// Begins a new look: no task has been seen yet.
    pub fn clear(&mut self) {
        self.awake = false;
        self.count = 0;
        self.runs = 0;
        self.pids.clear();
        (self.ran, self.waited) = (Duration::ZERO, Duration::ZERO);
        self.slept = Some(0);
    }

    /// Adds one task to the present look.
    pub fn add(&mut self, task: &TaskState) {
        self.awake |= !task.asleep;
        self.count += 1;
        self.runs = self.runs.wrapping_add(task.runs);
        if self.pids.last() != Some(&task.pid) {
            self.pids.push(task.pid);
        }
        self.ran += task.ran;
        self.waited += task.waited;
        self.slept = self.slept.zip(task.slept).map(|(sum, slept)| sum.wrapping_add(slept));
    }
}
