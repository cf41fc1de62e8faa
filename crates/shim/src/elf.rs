//! The tables that make the image a vDSO in the eyes of libc, Go and unwinders.
//!
//! They are written out here, not by a linker: the image is linked at its final address and needs no
//! relocation, and the tables need nothing else. glibc wants DT_HASH or DT_GNU_HASH, musl and old Go DT_HASH,
//! all of them the version LINUX_2.6.

use crate::vdso;

const NAMES: [&str; 12] = [
    "__vdso_clock_gettime",
    "clock_gettime",
    "__vdso_gettimeofday",
    "gettimeofday",
    "__vdso_time",
    "time",
    "__vdso_clock_getres",
    "clock_getres",
    "__vdso_getcpu",
    "getcpu",
    "__vdso_getrandom",
    "getrandom",
];
const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
/// The null symbol, then the names.
const SYMBOLS: usize = NAMES.len() + 1;

const STRINGS_LEN: usize = {
    let mut len = 1 + SONAME.len() + 1 + VERSION.len() + 1;
    let mut i = 0;
    while i < NAMES.len() {
        len += NAMES[i].len() + 1;
        i += 1;
    }
    len
};
const SONAME_AT: u32 = 1;
const VERSION_AT: u32 = SONAME_AT + SONAME.len() as u32 + 1;

/// Where the name of symbol `i` (from 0, without the null symbol) begins.
const fn name_at(i: usize) -> u32 {
    let mut at = VERSION_AT as usize + VERSION.len() + 1;
    let mut k = 0;
    while k < i {
        at += NAMES[k].len() + 1;
        k += 1;
    }
    at as u32
}

const fn put(mut strings: [u8; STRINGS_LEN], at: u32, text: &str) -> [u8; STRINGS_LEN] {
    let mut i = 0;
    while i < text.len() {
        strings[at as usize + i] = text.as_bytes()[i];
        i += 1;
    }
    strings
}

static STRINGS: [u8; STRINGS_LEN] = {
    let mut strings = put(put([0; STRINGS_LEN], SONAME_AT, SONAME), VERSION_AT, VERSION);
    let mut i = 0;
    while i < NAMES.len() {
        strings = put(strings, name_at(i), NAMES[i]);
        i += 1;
    }
    strings
};

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: *const (),
    size: u64,
}
// SAFETY: constants.
unsafe impl Sync for Symbol {}

const NULL: Symbol =
    Symbol { name: 0, info: 0, other: 0, section: 0, value: core::ptr::null(), size: 0 };

const fn function(i: usize, value: *const ()) -> Symbol {
    const GLOBAL_FUNCTION: u8 = 0x12;
    const ANY_SECTION: u16 = 1;
    Symbol {
        name: name_at(i),
        info: GLOBAL_FUNCTION,
        other: 0,
        section: ANY_SECTION,
        value,
        size: 64,
    }
}

static SYMTAB: [Symbol; SYMBOLS] = [
    NULL,
    function(0, vdso::clock_gettime as *const ()),
    function(1, vdso::clock_gettime as *const ()),
    function(2, vdso::gettimeofday as *const ()),
    function(3, vdso::gettimeofday as *const ()),
    function(4, vdso::time as *const ()),
    function(5, vdso::time as *const ()),
    function(6, vdso::clock_getres as *const ()),
    function(7, vdso::clock_getres as *const ()),
    function(8, vdso::getcpu as *const ()),
    function(9, vdso::getcpu as *const ()),
    function(10, vdso::getrandom as *const ()),
    function(11, vdso::getrandom as *const ()),
];

/// One bucket, all symbols in one chain.
static HASH: [u32; 2 + 1 + SYMBOLS] = {
    let mut table = [0; 2 + 1 + SYMBOLS];
    table[0] = 1;
    table[1] = SYMBOLS as u32;
    table[2] = 1;
    let mut i = 1;
    while i + 1 < SYMBOLS {
        table[3 + i] = i as u32 + 1;
        i += 1;
    }
    table
};

const fn gnu_hash(name: &str) -> u32 {
    let mut hash: u32 = 5381;
    let mut i = 0;
    while i < name.len() {
        hash = hash.wrapping_mul(33).wrapping_add(name.as_bytes()[i] as u32);
        i += 1;
    }
    hash
}

#[repr(C)]
struct GnuHash {
    buckets: u32,
    first: u32,
    bloom_words: u32,
    bloom_shift: u32,
    bloom: u64,
    bucket: u32,
    chain: [u32; NAMES.len()],
}

/// One bucket, and a Bloom filter that lets everything through.
static GNU_HASH: GnuHash = {
    let mut chain = [0; NAMES.len()];
    let mut i = 0;
    while i < NAMES.len() {
        chain[i] = gnu_hash(NAMES[i]) & !1;
        i += 1;
    }
    chain[NAMES.len() - 1] |= 1;
    GnuHash { buckets: 1, first: 1, bloom_words: 1, bloom_shift: 6, bloom: !0, bucket: 1, chain }
};

/// Every symbol has version 2, LINUX_2.6.
static VERSYM: [u16; SYMBOLS] = {
    let mut versions = [2; SYMBOLS];
    versions[0] = 0;
    versions
};

const fn elf_hash(name: &str) -> u32 {
    let mut hash: u32 = 0;
    let mut i = 0;
    while i < name.len() {
        hash = (hash << 4).wrapping_add(name.as_bytes()[i] as u32);
        let high = hash & 0xf000_0000;
        hash = (hash ^ (high >> 24)) & !high;
        i += 1;
    }
    hash
}

#[repr(C)]
struct VersionDefinition {
    version: u16,
    flags: u16,
    index: u16,
    names: u16,
    hash: u32,
    aux: u32,
    next: u32,
    name: u32,
    name_next: u32,
}

static VERDEF: [VersionDefinition; 2] = [
    VersionDefinition {
        version: 1,
        flags: 1,
        index: 1,
        names: 1,
        hash: elf_hash(SONAME),
        aux: 20,
        next: 28,
        name: SONAME_AT,
        name_next: 0,
    },
    VersionDefinition {
        version: 1,
        flags: 0,
        index: 2,
        names: 1,
        hash: elf_hash(VERSION),
        aux: 20,
        next: 0,
        name: VERSION_AT,
        name_next: 0,
    },
];

#[repr(C)]
struct Dynamic {
    tag: u64,
    value: *const (),
}
// SAFETY: constants.
unsafe impl Sync for Dynamic {}

const fn number(tag: u64, value: usize) -> Dynamic {
    Dynamic { tag, value: value as *const () }
}

const fn address<T>(tag: u64, value: *const T) -> Dynamic {
    Dynamic { tag, value: value as *const () }
}

#[cfg_attr(image, link_section = ".lorentz.dynamic", used)]
static DYNAMIC: [Dynamic; 11] = [
    number(14, SONAME_AT as usize),             // DT_SONAME
    address(4, &raw const HASH),                // DT_HASH
    address(0x6fff_fef5, &raw const GNU_HASH),  // DT_GNU_HASH
    address(5, &raw const STRINGS),             // DT_STRTAB
    number(10, STRINGS_LEN),                    // DT_STRSZ
    address(6, &raw const SYMTAB),              // DT_SYMTAB
    number(11, core::mem::size_of::<Symbol>()), // DT_SYMENT
    address(0x6fff_fff0, &raw const VERSYM),    // DT_VERSYM
    address(0x6fff_fffc, &raw const VERDEF),    // DT_VERDEF
    number(0x6fff_fffd, 2),                     // DT_VERDEFNUM
    number(0, 0),                               // DT_NULL
];
