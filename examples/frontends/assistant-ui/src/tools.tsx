import type { Toolkit } from "@assistant-ui/react";

/** Tools of the page (`frontend`, `human`), and how calls of the agent's own tools are drawn (`backend`). */
export const toolkit: Toolkit = {
  set_background: {
    type: "frontend",
    description: "Set the background colour of the page",
    parameters: {
      type: "object",
      properties: { colour: { type: "string", enum: ["lavender", "honeydew", "white"] } },
      required: ["colour"],
    },
    execute: async ({ colour }: { colour: string }) => {
      document.body.style.backgroundColor = colour;
      return `The background is ${colour}.`;
    },
    render: ({ args }) => <div className="card">The background is {args.colour}.</div>,
  },
  confirm: {
    type: "human",
    description: "Ask the user to confirm something",
    parameters: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
    render: ({ args, result, addResult }) => (
      <section className="card question" aria-label="Confirmation">
        <p>Confirm: {args.what}</p>
        {result === undefined ? (
          <>
            <button onClick={() => addResult("yes")}>Yes</button>
            <button onClick={() => addResult("no")}>No</button>
          </>
        ) : (
          <p>Answered: {String(result)}</p>
        )}
      </section>
    ),
  },
  get_weather: {
    type: "backend",
    render: ({ args, result }) => (
      <div className="card weather">
        {args.city} <strong>{result && `${valueOf(result).degrees} °C`}</strong>
      </div>
    ),
  },
  /** assistant-ui turns an A2UI surface into a call of this name, with the tree of its components. */
  present: {
    type: "backend",
    render: ({ args }) => (
      <section className="card" aria-label="Surface">
        <code>{JSON.stringify(args)}</code>
      </section>
    ),
  },
};

/** The result of a tool arrives as its text. */
function valueOf(result: unknown): any {
  return typeof result === "string" ? JSON.parse(result) : result;
}
