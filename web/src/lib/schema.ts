// Forms from docs/network.schema.json: one field for each key, by its type.

import { parse, stringify } from 'yaml';

export interface Schema {
  $defs?: Record<string, Schema>;
  $ref?: string;
  anyOf?: Schema[];
  oneOf?: (Schema & { const?: string })[];
  type?: string | string[];
  description?: string;
  default?: unknown;
  examples?: unknown[];
  const?: unknown;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  maxItems?: number;
}

export interface Field {
  key: string;
  help: string;
  kind: 'choice' | 'switch' | 'text' | 'lines' | 'pair' | 'yaml';
  choices: { value: string; help: string }[];
  placeholder: string;
  numeric: boolean;
}

/** Follows references and leaves null aside. */
function resolve(root: Schema, schema: Schema): Schema {
  if (schema.$ref) {
    const name = schema.$ref.replace('#/$defs/', '');
    return { ...resolve(root, root.$defs?.[name] ?? {}), ...without(schema, '$ref') };
  }
  const others = schema.anyOf?.filter((one) => one.type !== 'null');
  if (others?.length === 1) return { ...resolve(root, others[0]!), ...without(schema, 'anyOf') };
  return schema;
}

function without(schema: Schema, key: keyof Schema): Schema {
  const { [key]: _gone, ...rest } = schema;
  return rest;
}

/** The fields of a definition, in the file's order of importance: keys named in `first` come first. */
export function fieldsOf(
  root: Schema,
  definition: string,
  first: string[] = [],
  left: string[] = [],
): Field[] {
  const properties = root.$defs?.[definition]?.properties ?? {};
  const keys = Object.keys(properties).filter((key) => !left.includes(key));
  const rank = (key: string) => (first.includes(key) ? first.indexOf(key) : first.length);
  return keys
    .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))
    .map((key) => field(root, key, properties[key]!));
}

function field(root: Schema, key: string, raw: Schema): Field {
  const schema = resolve(root, raw);
  const help = raw.description ?? schema.description ?? '';
  const usual = schema.default ?? /\[default: ([^\]]+)\]/.exec(help)?.[1];
  const example = schema.examples?.[0];
  const types = [schema.type ?? []].flat();
  const made: Field = {
    key,
    help: help.replace(/\s*\[default: [^\]]+\]/, ''),
    kind: 'yaml',
    choices: [],
    placeholder: String(usual ?? example ?? ''),
    numeric: types.includes('number') || types.includes('integer'),
  };
  if (schema.oneOf?.every((one) => typeof one.const === 'string')) {
    made.kind = 'choice';
    made.choices = schema.oneOf.map((one) => ({ value: one.const!, help: one.description ?? '' }));
  } else if (types.includes('boolean')) made.kind = 'switch';
  else if (types.includes('array')) {
    const fixed = schema.maxItems === 2;
    made.kind = fixed ? 'pair' : 'lines';
  } else if (types.includes('string') || made.numeric) made.kind = 'text';
  else if (
    schema.anyOf?.some((one) =>
      [resolve(root, one).type ?? []].flat().some((type) => type === 'string' || type === 'number'),
    )
  )
    made.kind = 'yaml';
  return made;
}

/** A value as the text of a field. */
export function shown(field: Field, value: unknown): string {
  if (value === undefined || value === null) return '';
  if (field.kind === 'lines' && Array.isArray(value)) return value.map(String).join('\n');
  if (typeof value === 'object')
    return stringify(value, { collectionStyle: 'flow', lineWidth: 0, flowCollectionPadding: false }).trim();
  return String(value);
}

/** The value of a field's text; undefined for an empty one, which removes the key. */
export function taken(field: Field, text: string): unknown {
  const trimmed = text.trim();
  if (trimmed === '') return undefined;
  if (field.kind === 'lines') return trimmed.split('\n').filter(Boolean);
  if (field.kind === 'yaml') return parse(trimmed) as unknown;
  if (field.numeric && /^-?\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  return trimmed;
}

/** The value of a pair's two texts: numbers where the schema wants them, null for an empty one. */
export function takenPair(texts: [string, string]): unknown {
  if (texts.every((text) => text.trim() === '')) return undefined;
  return texts.map((text) => {
    const trimmed = text.trim();
    if (trimmed === '') return null;
    return /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
  });
}
