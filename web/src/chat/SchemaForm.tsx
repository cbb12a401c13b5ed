/** Forms from JSON Schema: text, number, choice, boolean, nested object, list; anything else as JSON. */

import { type ComponentChildren, createContext } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../Icon";
import type { Json } from "../protocol/types";
import { isObject, parseJson } from "./format";
import { follow, join, type Problem, type Schema, titleOf } from "./schemaCheck";

type ValueProps = { value: Json | undefined; label: string; id: string; onChange: (value: Json | undefined) => void };
type FieldProps = ValueProps & { schema: Schema; root: Schema; path: string; isRequired: boolean };

/** The problems of the form, which its fields show. */
const Problems = createContext<readonly Problem[]>([]);

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

/** Draw the form of a schema. Each problem is shown at its field. */
export function SchemaForm({ schema, problems, ...rest }: ValueProps & { schema: Schema; problems: readonly Problem[] }) {
  const resolved = resolve(schema, schema);
  return (
    <Problems.Provider value={problems}>
      {kindOf(resolved) === "object" && hasProperties(resolved) ? (
        <>
          <Properties schema={resolved} root={schema} path="" isRequired {...rest} />
          <Wrong id={`${rest.id}-wrong`} text={problemAt(problems, "", resolved)} />
        </>
      ) : (
        <Field schema={schema} root={schema} path="" isRequired {...rest} label={titleOf(schema, schema, rest.label)} />
      )}
    </Problems.Provider>
  );
}

/** Return the text of the problems at a field, and below it where no other field shows them; null without any. */
function problemAt(problems: readonly Problem[], path: string, schema: Schema): string | null {
  const isShownBelow = (rest: string) => kindOf(schema) === "array" || Object.keys(propertiesOf(schema)).some((name) => `${rest}/`.startsWith(`${join("", name)}/`));
  const own = problems.filter((one) => one.path === path || (one.path.startsWith(`${path}/`) && !isShownBelow(one.path.slice(path.length))));
  return own.length === 0 ? null : own.map((one) => one.text).join(" ");
}

function Wrong({ id, text }: { id: string; text: string | null }) {
  return text === null ? null : (
    <small id={id} class="is-bad">
      {text}
    </small>
  );
}

function Properties({ schema, root, value, id, path, onChange }: FieldProps) {
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
          path={join(path, name)}
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
  const { root, value, label, id, path, isRequired, onChange } = props;
  const schema = resolve(props.schema, root);
  const description = typeof schema["description"] === "string" ? schema["description"] : null;
  const wrong = problemAt(useContext(Problems), path, schema);
  const state = {
    id,
    "aria-describedby": [description !== null && `${id}-help`, wrong !== null && `${id}-wrong`].filter(Boolean).join(" ") || undefined,
    "aria-invalid": wrong === null ? undefined : true,
    "data-path": path,
  };
  const help = (
    <>
      {description !== null && (
        <small id={`${id}-help`} class="soft">
          {description}
        </small>
      )}
      <Wrong id={`${id}-wrong`} text={wrong} />
    </>
  );
  const optional = !isRequired && <span class="soft"> (optional)</span>;
  const caption = (
    <label for={id}>
      {label}
      {optional}
    </label>
  );
  const choices = choicesOf(schema);
  if (choices !== null) {
    const at = choices.findIndex((choice) => JSON.stringify(choice.value) === JSON.stringify(value));
    return (
      <div class="field">
        {caption}
        <select {...state} value={String(at)} onChange={(event) => onChange(choices[Number(event.currentTarget.value)]?.value)}>
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
          <input {...state} type="checkbox" checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
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
            {...state}
            type="number"
            step={kindOf(schema) === "integer" ? "1" : "any"}
            min={numberOf(schema["minimum"])}
            max={numberOf(schema["maximum"])}
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
            <textarea {...state} rows={3} value={typeof value === "string" ? value : ""} onInput={(event) => onChange(textOf(event.currentTarget.value, isRequired))} />
          ) : (
            <input
              {...state}
              type={(INPUT_TYPES[String(schema["format"])] ?? "text") as "text"}
              value={typeof value === "string" ? value : ""}
              onInput={(event) => onChange(textOf(event.currentTarget.value, isRequired))}
            />
          )}
          {help}
        </div>
      );
    case "object":
      if (hasProperties(schema)) {
        return (
          <fieldset class="field">
            <legend>
              {label}
              {optional}
            </legend>
            {help}
            {/* An optional object that is emptied again is left out. */}
            <Properties {...props} schema={schema} onChange={(changed) => onChange(!isRequired && isObject(changed) && Object.keys(changed).length === 0 ? undefined : changed)} />
          </fieldset>
        );
      }
      break;
    case "array":
      return (
        <fieldset class="field">
          <legend>
            {label}
            {optional}
          </legend>
          {help}
          <ListItems {...props} schema={schema} isWrong={wrong !== null} />
        </fieldset>
      );
  }
  return (
    <JsonField label={label} isRequired={isRequired} id={id} path={path} wrong={wrong} value={value} onChange={onChange}>
      {help}
    </JsonField>
  );
}

function ListItems({ schema, root, value, label, id, path, isWrong, onChange }: FieldProps & { isWrong: boolean }) {
  const items = Array.isArray(value) ? value : [];
  const item = itemsOf(schema);
  return (
    <>
      {items.map((each, index) => (
        <div class="list-item" key={index}>
          <Field
            schema={item}
            root={root}
            value={each ?? undefined}
            label={`${label} ${index + 1}`}
            id={`${id}-${index}`}
            path={join(path, index)}
            isRequired
            onChange={(changed) => onChange(items.map((other, at) => (at === index ? (changed ?? null) : other)))}
          />
          <button type="button" class="quiet icon-button" aria-label={`Remove ${label} ${index + 1}`} onClick={() => onChange(items.filter((_, at) => at !== index))}>
            <Icon name="cross" size={14} />
          </button>
        </div>
      ))}
      {/* Of a list that is wrong, this is what gets the focus. */}
      <button type="button" class={isWrong ? "wrong-list" : undefined} aria-describedby={isWrong ? `${id}-wrong` : undefined} onClick={() => onChange([...items, initialValue(item, root) ?? emptyOf(resolve(item, root))])}>
        <Icon name="plus" size={14} /> Add to {label}
      </button>
    </>
  );
}

type JsonFieldProps = ValueProps & { isRequired: boolean; path: string; wrong: string | null; children: ComponentChildren };

/** A value as JSON text. Text that is not JSON is reported and not passed on. `wrong` says what else is: `children` show it. */
function JsonField({ label, isRequired, id, path, wrong, value, onChange, children }: JsonFieldProps) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const area = useRef<HTMLTextAreaElement>(null);
  const isMalformed = text.trim() !== "" && parseJson(text) === undefined;
  useLayoutEffect(() => area.current!.setCustomValidity(isMalformed ? "This is not JSON." : ""), [isMalformed]);
  return (
    <div class="field">
      <label for={id}>
        {label}
        <span class="soft">{isRequired ? " (JSON)" : " (JSON, optional)"}</span>
      </label>
      <textarea
        id={id}
        ref={area}
        class="code"
        rows={Math.min(12, Math.max(2, text.split("\n").length))}
        spellcheck={false}
        aria-invalid={isMalformed || wrong !== null ? true : undefined}
        aria-describedby={isMalformed ? `${id}-json` : wrong !== null ? `${id}-wrong` : undefined}
        data-path={path}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          onChange(parseJson(event.currentTarget.value));
        }}
      />
      {isMalformed ? <Wrong id={`${id}-json`} text="This is not JSON." /> : children}
    </div>
  );
}

/** Return what was typed and is no value: `12e` as a number, half a date. The forms are sent with `noValidate`. */
export function findUnread(form: HTMLFormElement): Problem[] {
  return [...form.querySelectorAll("input")]
    .filter((input) => input.validity.badInput)
    .map((input) => ({ path: input.dataset["path"] ?? "", text: `${input.labels?.[0]?.textContent ?? "This"} is incomplete.` }));
}

// Reading a schema

/** Follow a local `$ref`, and take the one alternative of `anyOf` that is not null. */
function resolve(schema: Schema, root: Schema, depth = 0): Schema {
  const ref = schema["$ref"];
  if (typeof ref === "string" && depth < 20) {
    const at = follow(ref, root);
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

function hasProperties(schema: Schema): boolean {
  return Object.keys(propertiesOf(schema)).length > 0;
}

function requiredOf(schema: Schema): string[] {
  return Array.isArray(schema["required"]) ? schema["required"].filter((name) => typeof name === "string") : [];
}

function itemsOf(schema: Schema): Schema {
  return isObject(schema["items"]) ? schema["items"] : {};
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
