//! One trapped system call, and how a handler gets its arguments.

use crate::clocks::{self, Timebase};
use crate::layout::data;
use crate::sys::{
    self, reg, Errno, FromArg, IntoArg, Request, SigSet, SysResult, Sysno, Timespec, Ucontext,
    UserPtr,
};
use crate::user::Access;
use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;
use lorentz_clock::{Deadline, Span};

/// An error that means: the program makes the call again.
pub const AGAIN: Errno = Errno::ERESTARTNOINTR;

/// A system call as a program makes it.
pub struct Arguments {
    /// The call.
    pub nr: Sysno,
    /// Its argument registers.
    pub args: [u64; 6],
}

/// One trapped system call.
pub struct Call<'a> {
    /// The call itself.
    pub arguments: Arguments,
    /// The program's state; its mask and registers may be changed.
    pub context: &'a mut Ucontext,
}

impl Deref for Call<'_> {
    type Target = Arguments;

    fn deref(&self) -> &Arguments {
        &self.arguments
    }
}

impl Arguments {
    /// Argument number `index`, for a handler of several calls whose arguments differ.
    #[inline(always)]
    pub fn arg<T: FromArg>(&self, index: usize) -> T {
        T::from_arg(self.args[index])
    }

    /// The call itself, unchanged.
    #[inline(always)]
    pub fn request(&self) -> Request {
        Request::new(self.nr, self.args)
    }

    /// Makes the call itself, unchanged.
    pub fn by_kernel(&self) -> SysResult {
        // SAFETY: the program's own call.
        unsafe { self.request().make() }
    }

    /// Makes the call itself with `value` as its argument number `index`.
    ///
    /// # Safety
    /// The kernel may read and write where `value` points.
    pub unsafe fn by_kernel_with(&self, index: usize, value: impl IntoArg) -> SysResult {
        // SAFETY: the program's own call, but for `value`, which is the caller's promise.
        unsafe { self.request().with(index, value).make() }
    }
}

impl Call<'_> {
    /// The program's signal mask.
    pub fn mask(&self) -> SigSet {
        self.context.mask
    }

    /// The deadline `span` after the call was made.
    pub fn after(&self, span: Span) -> Deadline {
        self.after_on(Timebase::MONOTONIC, span)
    }

    /// The same on another clock. A call that a thread makes again because its process has been brought in was made earlier than now.
    pub fn after_on(&self, base: Timebase, span: Span) -> Deadline {
        clocks::after(Span(span.0.saturating_sub(waited_before())), base, &clocks::snapshot())
    }

    /// The deadline of a relative timeout; never where there is none. EINVAL where it is no valid time.
    pub fn deadline(&self, timeout: Option<UserPtr<Timespec>>) -> SysResult<Deadline> {
        let Some(timeout) = timeout else { return Ok(Deadline::Never) };
        let span = timeout.read()?.to_span().ok_or(Errno::EINVAL)?;
        Ok(self.after(span))
    }
}

/// Nanoseconds that this thread had waited when its process was brought in; returned once.
fn waited_before() -> i64 {
    let credits = &data().credits;
    if credits[0].thread.load(Relaxed) == 0 {
        return 0;
    }
    let thread = u64::from(sys::gettid());
    // Entries are used up from any end, so the first stays as long as any may be left: it is only marked.
    let own = credits.iter().find(|credit| credit.thread.load(Relaxed) == thread);
    own.map_or(0, |credit| credit.elapsed.swap(0, Relaxed) as i64)
}

/// Marks the program's registers behind a trapped call that returns EINTR. The syscall instruction leaves the address behind it in
/// rcx, for which programs have no use.
///
/// Race: a signal of the program's interrupts a trapped call, and a clock-change signal arrives before the handler returns. The
/// kernel delivers it behind the call, which looks like one that only the clock-change signal has interrupted. Therefore the mark.
pub fn mark_as_trapped(regs: &mut [u64; 23]) {
    regs[reg::RCX] = 0;
}

/// Whether the EINTR of the call just before the instruction pointer comes from the trap handler.
pub fn was_trapped(regs: &[u64; 23]) -> bool {
    regs[reg::RCX] != regs[reg::RIP]
}

/// A function that carries out a call, given the call and the first of its arguments as the types that it names. `Args` tells these
/// types apart.
pub trait Carry<Args> {
    /// Decodes the arguments and carries the call out.
    fn carry_out(self, call: &mut Call) -> SysResult;
}

macro_rules! carry {
    ($($arg:ident $index:literal)*) => {
        impl<F, $($arg),*> Carry<(&Call<'_>, $($arg,)*)> for F
        where
            F: FnOnce(&Call, $($arg),*) -> SysResult,
            $($arg: FromArg,)*
        {
            #[inline(always)]
            fn carry_out(self, call: &mut Call) -> SysResult {
                self(call, $($arg::from_arg(call.args[$index])),*)
            }
        }

        impl<F, $($arg),*> Carry<(&mut Call<'_>, $($arg,)*)> for F
        where
            F: FnOnce(&mut Call, $($arg),*) -> SysResult,
            $($arg: FromArg,)*
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn carry_out(self, call: &mut Call) -> SysResult {
                let args = call.args;
                self(call, $($arg::from_arg(args[$index])),*)
            }
        }
    };
}

carry! {}
carry! { A 0 }
carry! { A 0 B 1 }
carry! { A 0 B 1 C 2 }
carry! { A 0 B 1 C 2 D 3 }
carry! { A 0 B 1 C 2 D 3 E 4 }
carry! { A 0 B 1 C 2 D 3 E 4 G 5 }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Fd;

    fn after_the_call(call: &Call, fd: Fd, length: u64) -> SysResult {
        Ok(fd.number() as isize + length as isize + call.args[5] as isize)
    }

    fn into_the_context(call: &mut Call, fd: Fd) -> SysResult {
        call.context.regs[reg::RAX] = fd.number().into();
        Err(Errno::EBADF)
    }

    #[test]
    fn a_handler_gets_its_arguments_as_the_types_that_it_names() {
        // SAFETY: integers.
        let mut context: Ucontext = unsafe { core::mem::zeroed() };
        let args = [0xffff_ffff_0000_0007, 1 << 40, 0, 0, 0, 3];
        let arguments = Arguments { nr: Sysno::read, args };
        let mut call = Call { arguments, context: &mut context };
        assert_eq!(after_the_call.carry_out(&mut call), Ok((1 << 40) + 10));
        assert_eq!(into_the_context.carry_out(&mut call), Err(Errno::EBADF));
        assert_eq!(call.context.regs[reg::RAX], 7);
    }
}
