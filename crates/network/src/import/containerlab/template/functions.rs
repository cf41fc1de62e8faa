//! Functions that templates call: Go's, and those of containerlab for numbers, lists and texts.

use std::cmp::Ordering;

use serde_json::Value;

/// Most elements of a list that a function makes.
const MAX_LIST_LEN: i64 = 100_000;

/// Most bytes of a text that a function makes.
const MAX_TEXT_LEN: usize = 1 << 20;

/// Returns whether a condition holds: Go's zero values do not.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Returns the text of a value, as Go prints it.
pub(super) fn display(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            format!("[{}]", list.iter().map(display).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key}:{}", display(value)));
            format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// Calls a function with its arguments; a piped value is the last of them.
pub(super) fn call(name: &str, given: Vec<Value>) -> Result<Value, String> {
    // Later releases of containerlab have those of gomplate, in name spaces.
    let plain = name.rsplit('.').next().unwrap_or(name);
    let plain = format!("{}{}", plain[..1].to_lowercase(), &plain[1..]);
    let found = logic(&plain, &given)
        .or_else(|| numbers(&plain, &given).transpose())
        .or_else(|| texts(&plain, &given));
    match found {
        Some(Err(what)) => Err(format!("function {name}: {what}")),
        Some(Ok(Value::String(text))) if text.len() > MAX_TEXT_LEN => {
            Err(format!("function {name}: too long"))
        }
        Some(Ok(value)) => Ok(value),
        None => Err(format!("function {name}: not known")),
    }
}

fn logic(name: &str, given: &[Value]) -> Option<Result<Value, String>> {
    let one = |at: usize| given.get(at).unwrap_or(&Value::Null);
    let compared = || compare(one(0), one(1));
    Some(Ok(match name {
        "and" => given.iter().find(|one| !is_true(one)).or(given.last())?.clone(),
        "or" => given.iter().find(|one| is_true(one)).or(given.last())?.clone(),
        "not" => (!is_true(one(0))).into(),
        "eq" => given.iter().skip(1).any(|other| compare(one(0), other).is_eq()).into(),
        "ne" => compared().is_ne().into(),
        "lt" => compared().is_lt().into(),
        "le" => compared().is_le().into(),
        "gt" => compared().is_gt().into(),
        "ge" => compared().is_ge().into(),
        "default" if is_true(one(1)) => one(1).clone(),
        "default" => one(0).clone(),
        "ternary" if is_true(one(2)) => one(0).clone(),
        "ternary" => one(1).clone(),
        "index" => {
            let mut keys = given.iter();
            let first = keys.next()?.clone();
            keys.fold(first, |value, key| match key {
                Value::String(key) => value.get(key).cloned().unwrap_or(Value::Null),
                key => {
                    let at = key.as_u64().and_then(|at| usize::try_from(at).ok());
                    at.and_then(|at| value.get(at)).cloned().unwrap_or(Value::Null)
                }
            })
        }
        "len" => match one(0) {
            Value::Array(list) => list.len().into(),
            Value::Object(map) => map.len().into(),
            other => display(other).len().into(),
        },
        _ => return None,
    }))
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => display(one).cmp(&display(other)),
    }
}

/// `None` if it has no function of this name.
fn numbers(name: &str, given: &[Value]) -> Result<Option<Value>, String> {
    const NAMES: [&str; 15] = [
        "add", "add1", "sub", "subtract", "mul", "div", "mod", "rem", "max", "min", "int", "toInt",
        "atoi", "seq", "until",
    ];
    if !NAMES.contains(&name) {
        return Ok(None);
    }
    let whole = given.iter().map(|one| integer(one).ok_or_else(|| not_whole(one)));
    let whole = whole.collect::<Result<Vec<i64>, String>>()?;
    let overflow = || "too large".to_string();
    let folded = |with: fn(i64, i64) -> Option<i64>| {
        let (first, rest) = whole.split_first().ok_or("expected a number")?;
        rest.iter().try_fold(*first, |sum, one| with(sum, *one)).ok_or_else(overflow)
    };
    let two = || match whole[..] {
        [_, 0] => Err("by 0".to_string()),
        [one, other] => Ok((one, other)),
        _ => Err("expected two numbers".to_string()),
    };
    Ok(Some(match name {
        "add" => folded(i64::checked_add)?.into(),
        "add1" => folded(i64::checked_add)?.checked_add(1).ok_or_else(overflow)?.into(),
        "sub" | "subtract" => folded(i64::checked_sub)?.into(),
        "mul" => folded(i64::checked_mul)?.into(),
        "max" => folded(|one, other| Some(one.max(other)))?.into(),
        "min" => folded(|one, other| Some(one.min(other)))?.into(),
        "div" => match two()? {
            (one, other) if one.wrapping_rem(other) == 0 => one.wrapping_div(other).into(),
            (one, other) => (one as f64 / other as f64).into(),
        },
        "mod" | "rem" => two()?.0.checked_rem(two()?.1).ok_or_else(overflow)?.into(),
        "seq" => sequence(&whole)?,
        "until" if folded(|one, _| Some(one))? <= 0 => Value::Array(Vec::new()),
        "until" => sequence(&[0, folded(|one, _| Some(one))? - 1])?,
        _ => folded(|one, _| Some(one))?.into(),
    }))
}

/// Returns the numbers from the first to the last, upwards or downwards: `seq LAST`, `seq FIRST LAST`, `seq FIRST LAST STEP`.
fn sequence(given: &[i64]) -> Result<Value, String> {
    let (first, last, step) = match *given {
        [last] => (1, last, 1),
        [first, last] => (first, last, 1),
        [first, last, step] => (first, last, step.unsigned_abs()),
        _ => return Err("expected FIRST, LAST and perhaps a step".into()),
    };
    let (least, most) = (first.min(last), first.max(last));
    if most.checked_sub(least).is_none_or(|length| length > MAX_LIST_LEN) {
        return Err(format!("{first} to {last}: expected at most {MAX_LIST_LEN} numbers"));
    }
    let Some(step) = usize::try_from(step).ok().filter(|step| *step > 0) else {
        return Ok(Value::Array(Vec::new()));
    };
    let numbers: Vec<Value> = if first <= last {
        (first..=last).step_by(step).map(Value::from).collect()
    } else {
        (last..=first).rev().step_by(step).map(Value::from).collect()
    };
    Ok(numbers.into())
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(is) => Some((*is).into()),
        other => other.as_i64().or_else(|| other.as_f64().map(|number| number as i64)),
    }
}

fn not_whole(value: &Value) -> String {
    format!("{}: expected a whole number", display(value))
}

fn texts(name: &str, given: &[Value]) -> Option<Result<Value, String>> {
    let all: Vec<String> = given.iter().map(display).collect();
    let one = |at: usize| all.get(at).map_or("", String::as_str);
    Some(Ok(match name {
        "print" => all.concat().into(),
        "println" => (all.join(" ") + "\n").into(),
        "printf" => return Some(formatted(one(0), given.get(1..).unwrap_or_default())),
        "toString" | "string" => one(0).into(),
        "toJSON" => given.first().unwrap_or(&Value::Null).to_string().into(),
        "quote" => format!("{:?}", one(0)).into(),
        "squote" => format!("'{}'", one(0)).into(),
        "upper" | "toUpper" => one(0).to_uppercase().into(),
        "lower" | "toLower" => one(0).to_lowercase().into(),
        "trim" | "trimSpace" => one(all.len().saturating_sub(1)).trim().into(),
        "replace" | "replaceAll" => {
            let length = one(2).matches(one(0)).count().saturating_mul(one(1).len());
            match length > MAX_TEXT_LEN {
                true => return Some(Err("too long".into())),
                false => one(2).replace(one(0), one(1)).into(),
            }
        }
        "contains" => one(1).contains(one(0)).into(),
        "hasPrefix" => one(1).starts_with(one(0)).into(),
        "hasSuffix" => one(1).ends_with(one(0)).into(),
        "split" => one(1).split(one(0)).map(Value::from).collect::<Vec<_>>().into(),
        "join" => {
            // gomplate has the list first, sprig the text between its elements.
            let list = given.iter().find_map(Value::as_array).into_iter().flatten().map(display);
            let list: Vec<String> = list.collect();
            let between = given.iter().find_map(Value::as_str).unwrap_or_default();
            match list.len().saturating_mul(between.len()) > MAX_TEXT_LEN {
                true => return Some(Err("too long".into())),
                false => list.join(between).into(),
            }
        }
        _ => return None,
    }))
}

/// Formats values by `%s`, `%v`, `%d` and `%q`, perhaps with a width, and by `%x` and `%X`.
fn formatted(format: &str, given: &[Value]) -> Result<Value, String> {
    let mut values = given.iter();
    let mut made = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        made += &rest[..at];
        rest = &rest[at + 1..];
        let end = rest.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(rest.len());
        let (width, verb) = (&rest[..end], rest[end..].chars().next());
        rest = rest.get(end + 1..).unwrap_or_default();
        if verb == Some('%') {
            made.push('%');
            continue;
        }
        let value = values.next().unwrap_or(&Value::Null);
        let number = || integer(value).ok_or_else(|| not_whole(value));
        let text = match verb {
            Some('s' | 'v' | 'd') => display(value),
            Some('q') => format!("{:?}", display(value)),
            Some('x') => format!("{:x}", number()?),
            Some('X') => format!("{:X}", number()?),
            _ => return Err(format!("{format}: expected %s, %v, %d, %q or %x")),
        };
        let fill = if width.starts_with('0') { "0" } else { " " };
        let length = width.trim_start_matches('-').parse::<usize>().unwrap_or(0).min(64);
        let missing = fill.repeat(length.saturating_sub(text.chars().count()));
        made += &if width.starts_with('-') { text + &missing } else { missing + &text };
    }
    Ok((made + rest).into())
}
