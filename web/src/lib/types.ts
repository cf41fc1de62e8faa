// The server's types, by the names that the page uses. They are generated from crates/web; instants are decimal strings
// of nanoseconds.

export type {
  About,
  ActionRequest as Act,
  ActionResult as Done,
  CheckResult,
  Clock,
  ClockFault,
  Container,
  Experiment,
  ExperimentMember,
  FileEntry,
  HistoryPoint,
  ImportResult,
  LinkDirection as Direction,
  LinkImpairments as Impairments,
  Network,
  NetworkLink as Link,
  NetworkNode as Node,
  Output,
  Remark,
  ScheduledChange,
  State,
  StateChange,
  Verdict,
  Wait,
} from './api';
