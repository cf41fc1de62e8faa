//! The text of `lorentz` alone: first commands to try.

/// Short enough for one look; each line can be typed as it is.
pub const TOUR: &str = "\
Virtual time for unmodified Linux programs. Try:

  lorentz run --at '2038-01-19 03:14' date              another date
  lorentz run --rate 60x -- sh -c 'sleep 60; date'      a minute in a second
  lorentz run --skip-idle -- sh -c 'sleep 1d; date'     a day at once
  lorentz run --at 'next monday 9:00' --dry-run date    only show how the clock would start

A program that runs on, and its clock:

  lorentz run --name web --rate 10x -- python3 -m http.server 8000
  lorentz time web                 its clocks beside the host's
  lorentz leap web --by 1d         a day later
  lorentz freeze web               time stands still; 'lorentz unfreeze web' lets it go on
  lorentz why web                  who waits for what, until when

'lorentz --help' lists all commands, 'lorentz help run' explains one.
'lorentz doctor' tells what this machine supports.
";
