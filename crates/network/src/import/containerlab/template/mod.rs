//! Templates of Go (`text/template`), as far as topologies of containerlab use them.

mod functions;
mod parse;

use std::path::Path;

use serde_json::Value;

use functions::{call, display, is_true};
use parse::{Filled, Operand, Part, Pipeline};

/// Most bytes of a topology that a template makes.
const MAX_OUTPUT_LEN: usize = 16 << 20;

/// Most rounds of all of its ranges together.
const MAX_ROUNDS: usize = 1_000_000;

/// Returns the file with the variables of the template at `file`, and its text: containerlab looks for `NAME_vars` beside `NAME`.
pub(super) fn variables_beside(file: &Path) -> Option<(String, String)> {
    let stem = file.with_extension("");
    [".yaml", ".yml", ".json"].into_iter().find_map(|ending| {
        let path = format!("{}_vars{ending}", stem.display());
        std::fs::read_to_string(&path).ok().map(|text| (path, text))
    })
}

/// Fills a template in with `data`.
pub(super) fn fill(template: &str, data: Value) -> Filled<String> {
    let parts = parse::parse(template)?;
    let variables = vec![(String::new(), data.clone())];
    let mut run = Run { variables, rounds: 0, output: String::new() };
    run.parts(&parts, &data)?;
    Ok(run.output)
}

/// The state of a template that is being filled in.
struct Run {
    /// Variables in scope, the innermost last. The one without a name is the data of the whole template.
    variables: Vec<(String, Value)>,
    /// Rounds of ranges so far.
    rounds: usize,
    output: String,
}

impl Run {
    fn parts(&mut self, parts: &[Part], dot: &Value) -> Filled<()> {
        let outer = self.variables.len();
        for part in parts {
            self.part(part, dot)?;
        }
        self.variables.truncate(outer);
        Ok(())
    }

    fn part(&mut self, part: &Part, dot: &Value) -> Filled<()> {
        match part {
            Part::Text(text) => self.output += text,
            Part::Print(pipeline) => self.output += &display(&self.pipeline(pipeline, dot)?),
            Part::Declare(name, pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                self.variables.push((name.clone(), value));
            }
            Part::Assign(name, pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                let known = self.variables.iter_mut().rfind(|(one, _)| one == name);
                let Some((_, old)) = known else {
                    return Err(pipeline.error(format!("${name}: expected a variable")));
                };
                *old = value;
            }
            Part::If { condition, then, otherwise } => {
                let chosen =
                    if is_true(&self.pipeline(condition, dot)?) { then } else { otherwise };
                self.parts(chosen, dot)?;
            }
            Part::With { value, then, otherwise } => {
                let value = self.pipeline(value, dot)?;
                match is_true(&value) {
                    true => self.parts(then, &value)?,
                    false => self.parts(otherwise, dot)?,
                }
            }
            Part::Range { names, over, body, otherwise } => {
                let elements = self.pipeline(over, dot)?;
                if self.range(names, elements, body, otherwise, dot)?.is_too_long() {
                    return Err(over.error("range: too long"));
                }
            }
        }
        Ok(())
    }

    fn range(
        &mut self,
        names: &[String],
        over: Value,
        body: &[Part],
        otherwise: &[Part],
        dot: &Value,
    ) -> Filled<&Run> {
        let elements: Vec<(Value, Value)> = match over {
            Value::Array(list) => (0_u64..).map(Value::from).zip(list).collect(),
            Value::Object(map) => map.into_iter().map(|(key, one)| (key.into(), one)).collect(),
            Value::Number(count) => {
                let count = count.as_u64().unwrap_or(0);
                (0..count).map(|one| (one.into(), one.into())).collect()
            }
            _ => Vec::new(),
        };
        if elements.is_empty() {
            self.parts(otherwise, dot)?;
        }
        for (key, element) in elements {
            self.rounds += 1;
            if self.is_too_long() {
                break;
            }
            let outer = self.variables.len();
            match names {
                [value] => self.variables.push((value.clone(), element.clone())),
                [index, value] => {
                    self.variables.push((index.clone(), key));
                    self.variables.push((value.clone(), element.clone()));
                }
                _ => {}
            }
            self.parts(body, &element)?;
            self.variables.truncate(outer);
        }
        Ok(self)
    }

    fn is_too_long(&self) -> bool {
        self.output.len() > MAX_OUTPUT_LEN || self.rounds > MAX_ROUNDS
    }

    fn pipeline(&self, pipeline: &Pipeline, dot: &Value) -> Filled<Value> {
        let mut piped = None;
        for command in &pipeline.commands {
            let mut values = Vec::new();
            let (function, operands) = match command.split_first() {
                Some((Operand::Function(name), rest)) => (Some(name), rest),
                _ => (None, command.as_slice()),
            };
            for operand in operands {
                values.push(self.operand(operand, pipeline, dot)?);
            }
            values.extend(piped.take());
            piped = Some(match function {
                Some(name) => call(name, values).map_err(|what| pipeline.error(what))?,
                None if values.len() == 1 => values.remove(0),
                None => return Err(pipeline.error("expected a value, or a function's name")),
            });
        }
        Ok(piped.unwrap_or(Value::Null))
    }

    fn operand(&self, operand: &Operand, of: &Pipeline, dot: &Value) -> Filled<Value> {
        let (start, fields) = match operand {
            Operand::Literal(value) => return Ok(value.clone()),
            Operand::Function(name) => return call(name, vec![]).map_err(|what| of.error(what)),
            Operand::Dot(fields) => (dot.clone(), fields),
            Operand::Variable(name, fields) => {
                let known = self.variables.iter().rfind(|(one, _)| one == name);
                let value = known.map(|(_, value)| value.clone());
                (value.ok_or_else(|| of.error(format!("${name}: expected a variable")))?, fields)
            }
            Operand::Group(inner, fields) => (self.pipeline(inner, dot)?, fields),
        };
        let field = |value: Value, key: &String| value.get(key).cloned().unwrap_or(Value::Null);
        Ok(fields.iter().fold(start, field))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(template: &str) -> String {
        let data = json!({"leaves": {"num": 2, "type": "d2"}, "names": ["a", "b"], "on": true});
        fill(template, data).unwrap_or_else(|error| panic!("{template}: {}", error.what))
    }

    fn error(template: &str) -> (u32, u32, String) {
        let error = fill(template, Value::Null).unwrap_err();
        (error.at.line, error.at.column, error.what)
    }

    #[test]
    fn values_are_printed() {
        assert_eq!(filled("{{ .leaves.num }}/{{ $.leaves.type }}/{{ .none }}"), "2/d2/<no value>");
        assert_eq!(filled("{{ index . \"leaves\" \"num\" }}{{ index .names 1 }}"), "2b");
        assert_eq!(filled("{{/* nothing */}}{{ \"a\\\"b\" }}{{ `c` }}{{ 7 }}"), "a\"bc7");
    }

    #[test]
    fn white_space_is_trimmed() {
        assert_eq!(filled("a \n{{- 1 -}}\n b"), "a1b");
        assert_eq!(filled("a {{ 1 }} b {{- /* c */ -}} d"), "a 1 bd");
    }

    #[test]
    fn ranges_go_over_lists_and_numbers() {
        assert_eq!(filled("{{ range $i := until .leaves.num }}[{{ add1 $i }}]{{ end }}"), "[1][2]");
        assert_eq!(filled("{{ range $i := seq 1 3 }}{{ $i }}{{ end }}"), "123");
        assert_eq!(
            filled("{{ range $i, $n := .names }}{{ $i }}{{ $n }}{{ . }}{{ end }}"),
            "0aa1bb"
        );
        assert_eq!(filled("{{ range .none }}x{{ else }}none{{ end }}"), "none");
        assert_eq!(
            filled("{{ range $k, $v := .leaves }}{{ $k }}={{ $v }};{{ end }}"),
            "num=2;type=d2;"
        );
    }

    #[test]
    fn conditions_choose() {
        assert_eq!(filled("{{ if .on }}yes{{ else }}no{{ end }}"), "yes");
        assert_eq!(filled("{{ if and .on (not .none) }}yes{{ end }}"), "yes");
        let chain = "{{ if eq .leaves.type \"x\" }}x{{ else if gt .leaves.num 1 }}many{{ else }}one{{ end }}";
        assert_eq!(filled(chain), "many");
        assert_eq!(filled("{{ with .leaves }}{{ .num }}{{ end }}"), "2");
    }

    #[test]
    fn variables_keep_their_scope() {
        assert_eq!(filled("{{ $x := 0 }}{{ if .on }}{{ $x = 48 }}{{ end }}{{ add $x 1 }}"), "49");
        assert_eq!(
            filled("{{ $x := 1 }}{{ range .names }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}"),
            "221"
        );
    }

    #[test]
    fn functions_take_what_is_piped() {
        assert_eq!(filled("{{ .leaves.type | upper | printf \"%s-%d\" \"n\" | len }}"), "4");
        assert_eq!(
            filled("{{ printf \"%s%02d\" .leaves.type 7 }}{{ .none | default 5 }}"),
            "d2075"
        );
        assert_eq!(filled("{{ math.Add 1 (mul 2 3) }}{{ subtract 5 2 }}{{ rem 7 4 }}"), "733");
        assert_eq!(filled("{{ div 6 2 }} {{ div 7 2 }} {{ conv.ToInt (div 7 2) }}"), "3 3.5 3");
        assert_eq!(filled("{{ seq 3 1 }} {{ seq 2 8 3 }} {{ until 0 }}"), "[3 2 1] [2 5 8] []");
        assert_eq!(filled("{{ ToJSON .names }}"), "[\"a\",\"b\"]");
    }

    #[test]
    fn errors_have_positions() {
        assert_eq!(error("a\n {{ no 1 }}"), (2, 2, "function no: not known".into()));
        assert_eq!(error("{{ if .a }}").2, "if: expected an end");
        assert_eq!(error("x {{ end }}"), (1, 3, "end: without a beginning".into()));
        assert_eq!(error("{{ .a").2, "{{: expected }}");
        assert_eq!(error("{{ $x }}").2, "$x: expected a variable");
        assert_eq!(error("{{ div 1 0 }}").2, "function div: by 0");
        let long = "{{ range until 9999 }}{{ range until 9999 }}{{ end }}{{ end }}";
        assert_eq!(error(long).2, "range: too long");
        let doubled = "{{ $x := `ab` }}{{ range until 99 }}{{ $x = print $x $x }}{{ end }}";
        assert_eq!(error(doubled).2, "function print: too long");
    }
}
