/** Forms from JSON Schema: text, number, choice, boolean, nested object, list; anything else as JSON. */

import { useState } from "preact/hooks";
import { Icon } from "../Icon";
import type { Json } from "../protocol/types";
import { isObject, parseJson } from "./format";

export type Schema = { [key: string]: Json };
type FieldProps = { schema: Schema; root: Schema; value: Json | undefined; label: string; id: string; isRequired: boolean; onChange: (value: Json | undefined) => void };

const INPUT_TYPES: { [format: string]: "date" | "email" | "time" | "password" } = { date: "date", email: "email", time: "time", password: "password" };

/** Return the value that a form starts with: defaults, and empty objects and lists that are required. */
export function initialValue(schema: Schema, root: Schema = schema): Json | undefined {
  const resolved = resolve(schema, root);
  if (resolved["default"] !== undefined) return resolved["default"];
  if (resolved["const"] !== undefined) return resolved["const"];
  switch (kindOf(resolved)) {
    case "object": {
      const value: { [key: string]: Json } = {};
      for (const [name, each] of Object.entries(propertiesOf(resolved))) {
        const start = requiredOf(resolved).includes(name) || resolve(each, root)["default"] !== undefined ? initialValue(each, root) : undefined;
        if (start !== undefined) value[name] = start;
      }
      return value;
    }
    case "array":
      return [];
    case "boolean":
      return false;
    default:
      return undefined;
  }
}

/** Return what is missing or malformed in a value, by label; an empty list if the form can be sent. */
export function findProblems(schema: Schema, value: Json | undefined, label: string, root: Schema = schema): string[] {
  const resolved = resolve(schema, root);
  if (value === undefined) return [`${label} is required`];
  const kind = kindOf(resolved);
  if (kind === "object" && isObject(value)) {
    const required = requiredOf(resolved);
    return Object.entries(propertiesOf(resolved)).flatMap(([name, each]) =>
      value[name] === undefined ? (required.includes(name) ? [`${titleOf(each, root, name)} is required`] : []) : findProblems(each, value[name], titleOf(each, root, name), root),
    );
  }
  if (kind === "array" && Array.isArray(value)) {
    return value.flatMap((each, index) => findProblems(itemsOf(resolved), each, `${label} ${index + 1}`, root));
  }
  if (kind === "string" && value === "" && typeof resolved["minLength"] === "number" && resolved["minLength"] > 0) return [`${label} is required`];
  return [];
}

/** Draw the form of a schema. */
export function SchemaForm({ schema, value, label, id, onChange }: { schema: Schema; value: Json | undefined; label: string; id: string; onChange: (value: Json | undefined) => void }) {
  const resolved = resolve(schema, schema);
  if (kindOf(resolved) === "object") {
    return <Properties schema={resolved} root={schema} value={value} label={label} id={id} isRequired onChange={onChange} />;
  }
  return <Field schema={schema} root={schema} value={value} label={titleOf(schema, schema, label)} id={id} isRequired onChange={onChange} />;
}

function Properties({ schema, root, value, id, onChange }: FieldProps) {
  const object = isObject(value) ? value : {};
  return (
    <>
      {Object.entries(propertiesOf(schema)).map(([name, each]) => (
        <Field
          key={name}
          schema={each}
          root={root}
          value={object[name]}
          label={titleOf(each, root, name)}
          id={`${id}-${name}`}
          isRequired={requiredOf(schema).includes(name)}
          onChange={(changed) => {
            // A member that exists keeps its place.
            onChange(changed === undefined ? without(object, name) : { ...object, [name]: changed });
          }}
        />
      ))}
    </>
  );
}

function Field(props: FieldProps) {
  const { root, value, label, id, isRequired, onChange } = props;
  const schema = resolve(props.schema, root);
  const description = typeof schema["description"] === "string" ? schema["description"] : null;
  const describedBy = description === null ? undefined : `${id}-help`;
  const help = description !== null && (
    <small id={describedBy} class="soft">
      {description}
    </small>
  );
  const caption = (
    <label for={id}>
      {label}
      {!isRequired && <span class="soft"> (optional)</span>}
    </label>
  );
  const choices = choicesOf(schema);
  if (choices !== null) {
    const at = choices.findIndex((choice) => JSON.stringify(choice.value) === JSON.stringify(value));
    return (
      <div class="field">
        {caption}
        <select id={id} aria-describedby={describedBy} value={String(at)} onChange={(event) => onChange(choices[Number(event.currentTarget.value)]?.value)}>
          <option value="-1">{isRequired ? "Choose…" : "None"}</option>
          {choices.map((choice, index) => (
            <option key={index} value={String(index)}>
              {choice.label}
            </option>
          ))}
        </select>
        {help}
      </div>
    );
  }
  switch (kindOf(schema)) {
    case "boolean":
      return (
        <div class="field is-check">
          <input id={id} type="checkbox" aria-describedby={describedBy} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
          <label for={id}>{label}</label>
          {help}
        </div>
      );
    case "number":
    case "integer":
      return (
        <div class="field">
          {caption}
          <input
            id={id}
            type="number"
            step={kindOf(schema) === "integer" ? "1" : "any"}
            min={numberOf(schema["minimum"])}
            max={numberOf(schema["maximum"])}
            aria-describedby={describedBy}
            value={typeof value === "number" ? value : ""}
            onInput={(event) => onChange(Number.isNaN(event.currentTarget.valueAsNumber) ? undefined : event.currentTarget.valueAsNumber)}
          />
          {help}
        </div>
      );
    case "string":
      return (
        <div class="field">
          {caption}
          {schema["format"] === "textarea" || (typeof schema["maxLength"] === "number" && schema["maxLength"] > 200) ? (
            <textarea id={id} rows={3} aria-describedby={describedBy} value={typeof value === "string" ? value : ""} onInput={(event) => onChange(textOf(event.currentTarget.value, isRequired))} />
          ) : (
            <input
              id={id}
              type={(INPUT_TYPES[String(schema["format"])] ?? "text") as "text"}
              aria-describedby={describedBy}
              value={typeof value === "string" ? value : ""}
              onInput={(event) => onChange(textOf(event.currentTarget.value, isRequired))}
            />
          )}
          {help}
        </div>
      );
    case "object":
      if (Object.keys(propertiesOf(schema)).length > 0) {
        return (
          <fieldset class="field">
            <legend>{label}</legend>
            {help}
            <Properties {...props} schema={schema} />
          </fieldset>
        );
      }
      break;
    case "array":
      return <ListField {...props} schema={schema} />;
  }
  return <JsonField label={label} id={id} value={value} onChange={onChange} />;
}

function ListField({ schema, root, value, label, id, onChange }: FieldProps) {
  const items = Array.isArray(value) ? value : [];
  const item = itemsOf(schema);
  return (
    <fieldset class="field">
      <legend>{label}</legend>
      {items.map((each, index) => (
        <div class="list-item" key={index}>
          <Field
            schema={item}
            root={root}
            value={each ?? undefined}
            label={`${label} ${index + 1}`}
            id={`${id}-${index}`}
            isRequired
            onChange={(changed) => onChange(items.map((other, at) => (at === index ? (changed ?? null) : other)))}
          />
          <button type="button" class="quiet icon-button" aria-label={`Remove ${label} ${index + 1}`} onClick={() => onChange(items.filter((_, at) => at !== index))}>
            <Icon name="cross" size={14} />
          </button>
        </div>
      ))}
      <button type="button" onClick={() => onChange([...items, initialValue(item, root) ?? emptyOf(resolve(item, root))])}>
        <Icon name="plus" size={14} /> Add to {label}
      </button>
    </fieldset>
  );
}

/** A value as JSON text. Text that is not JSON is reported and not passed on. */
export function JsonField({ label, id, value, onChange }: { label: string; id: string; value: Json | undefined; onChange: (value: Json | undefined) => void }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const isWrong = text.trim() !== "" && parseJson(text) === undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="code"
        rows={Math.min(12, Math.max(2, text.split("\n").length))}
        spellcheck={false}
        aria-invalid={isWrong}
        aria-describedby={isWrong ? `${id}-wrong` : undefined}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          onChange(parseJson(event.currentTarget.value));
        }}
      />
      {isWrong && (
        <small id={`${id}-wrong`} class="is-bad">
          This is not JSON.
        </small>
      )}
    </div>
  );
}

// Reading a schema

/** Follow a local `$ref`, and take the one alternative of `anyOf` that is not null. */
function resolve(schema: Schema, root: Schema, depth = 0): Schema {
  const ref = schema["$ref"];
  if (typeof ref === "string" && ref.startsWith("#/") && depth < 20) {
    let at: Json | undefined = root;
    for (const name of ref.slice(2).split("/")) at = isObject(at) ? at[name.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
    if (isObject(at)) return resolve({ ...at, ...without(schema, "$ref") }, root, depth + 1);
  }
  for (const word of ["anyOf", "oneOf", "allOf"]) {
    const alternatives = schema[word];
    if (!Array.isArray(alternatives)) continue;
    const real = alternatives.filter((each): each is Schema => isObject(each) && each["type"] !== "null");
    if (real.length === 1 && depth < 20) return resolve({ ...real[0], ...without(schema, word) }, root, depth + 1);
  }
  return schema;
}

function without(schema: Schema, name: string): Schema {
  const { [name]: _, ...rest } = schema;
  return rest;
}

function kindOf(schema: Schema): string {
  const type = Array.isArray(schema["type"]) ? schema["type"].find((each) => each !== "null") : schema["type"];
  if (typeof type === "string") return type;
  if (isObject(schema["properties"])) return "object";
  return schema["items"] === undefined ? "any" : "array";
}

function propertiesOf(schema: Schema): { [name: string]: Schema } {
  const properties = schema["properties"];
  return isObject(properties) ? Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, isObject(each) ? each : {}])) : {};
}

function requiredOf(schema: Schema): string[] {
  return Array.isArray(schema["required"]) ? schema["required"].filter((name) => typeof name === "string") : [];
}

function itemsOf(schema: Schema): Schema {
  return isObject(schema["items"]) ? schema["items"] : {};
}

function titleOf(schema: Schema, root: Schema, name: string): string {
  const title = resolve(schema, root)["title"];
  return typeof title === "string" ? title : name;
}

/** The values of an enum, or of alternatives that are constants. */
function choicesOf(schema: Schema): { value: Json; label: string }[] | null {
  if (Array.isArray(schema["enum"])) return schema["enum"].map((value) => ({ value, label: labelOf(value) }));
  for (const word of ["oneOf", "anyOf"]) {
    const alternatives = schema[word];
    if (!Array.isArray(alternatives) || alternatives.length === 0) continue;
    if (!alternatives.every((each) => isObject(each) && each["const"] !== undefined)) continue;
    return (alternatives as Schema[]).map((each) => ({ value: each["const"]!, label: typeof each["title"] === "string" ? each["title"] : labelOf(each["const"]!) }));
  }
  return null;
}

function labelOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function emptyOf(schema: Schema): Json {
  return { string: "", number: 0, integer: 0, boolean: false, array: [], object: {} }[kindOf(schema)] ?? null;
}

function numberOf(value: Json | undefined): number | undefined {
  return typeof value === "number" ? value : undefined;
}

function textOf(text: string, isRequired: boolean): string | undefined {
  return text === "" && !isRequired ? undefined : text;
}
