//! The mounts that a process sees: /proc/PID/mountinfo, as proc_pid_mountinfo(5) describes it.

use std::fs;
use std::io;

/// A mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Its number, as `mnt_id` in /proc/PID/fdinfo.
    pub id: u64,
    /// The directory of the file system that is seen there.
    pub root: String,
    /// The mount point.
    pub point: String,
    /// The kind of file system.
    pub kind: String,
    /// Options of the file system: for control groups of version 1, the controllers.
    pub options: String,
}

impl Mount {
    /// Reads the mounts that process `pid` sees, or this one for `self`.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn all_of(pid: &str) -> io::Result<Vec<Mount>> {
        Ok(Mount::parse_all(&fs::read_to_string(format!("/proc/{pid}/mountinfo"))?).collect())
    }

    /// Reads the text of mountinfo. Lines of another form are left out.
    pub fn parse_all(text: &str) -> impl Iterator<Item = Mount> + '_ {
        text.lines().filter_map(Mount::parse)
    }

    fn parse(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let id = fields.next()?.parse().ok()?;
        let mut fields = fields.skip(2);
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let mut fields = file_system.split(' ');
        let (kind, _, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { id, root, point, kind: kind.to_string(), options: options.to_string() })
    }
}

/// Decodes a path, in which `\040` stands for a space. The kernel writes four characters so.
fn unescaped(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_string(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "\
58 51 0:29 /pods/a /srv/a\\040b\\134c ro,nosuid master:3 - cgroup cgroup rw,cpu,cpuacct
nonsense

22 1 254:0 / / rw - ext4 /dev/vda rw
";
        let [first, second] = &Mount::parse_all(text).collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(
            (first.id, first.root.as_str(), first.point.as_str()),
            (58, "/pods/a", "/srv/a b\\c")
        );
        assert_eq!((first.kind.as_str(), first.options.as_str()), ("cgroup", "rw,cpu,cpuacct"));
        assert_eq!((second.id, second.point.as_str()), (22, "/"));
    }

    #[test]
    fn this_process_sees_proc() {
        let mounts = Mount::all_of("self").unwrap();
        assert!(mounts.iter().any(|mount| mount.point == "/proc" && mount.kind == "proc"));
    }
}
