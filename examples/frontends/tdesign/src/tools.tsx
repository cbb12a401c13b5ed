import type { ActivityConfig, AgentToolcallConfig } from "@tdesign-react/chat";

/** Tools that the page offers to the agent. `run` answers at once; a tool without it is answered by the user. */
export const PAGE_TOOLS: { name: string; description: string; parameters: object; run?: (args: any) => string }[] = [
  {
    name: "set_background",
    description: "Set the background colour of the page",
    parameters: {
      type: "object",
      properties: { colour: { type: "string", enum: ["lavender", "honeydew", "white"] } },
      required: ["colour"],
    },
    run: ({ colour }) => {
      document.body.style.backgroundColor = colour;
      return `The background is ${colour}.`;
    },
  },
  {
    name: "confirm",
    description: "Ask the user to confirm something",
    parameters: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
  },
];

/** How calls are drawn, for `useAgentToolcall`. TDesign Chat draws nothing for a call of another tool. */
export const TOOL_CARDS: AgentToolcallConfig[] = [
  {
    name: "get_weather",
    description: "Look up the weather",
    component: ({ args, result }) => (
      <div className="card weather">
        {args.city} <strong>{result && `${result.degrees} °C`}</strong>
      </div>
    ),
  },
  {
    name: "confirm",
    description: "Ask the user to confirm something",
    component: ({ args, result, respond }) => (
      <section className="card question" aria-label="Confirmation">
        <p>Confirm: {args.what}</p>
        {result === undefined ? (
          <>
            <button onClick={() => respond?.("yes")}>Yes</button>
            <button onClick={() => respond?.("no")}>No</button>
          </>
        ) : (
          <p>Answered: {String(result)}</p>
        )}
      </section>
    ),
  },
  card("set_background"),
  card("send_mail"),
  card("draw"),
];

/** A card with the arguments and the result. Only a handler receives a result that is not JSON. */
function card(name: string): AgentToolcallConfig {
  return {
    name,
    handler: async (_args, result) => result,
    component: ({ args, result }) => (
      <div className="card">
        <code>
          {name}({JSON.stringify(args)})
        </code>
        {result !== undefined && <div>{typeof result === "string" ? result : JSON.stringify(result)}</div>}
      </div>
    ),
  };
}

/** How activities are drawn, for `useAgentActivity`. */
export const ACTIVITIES: ActivityConfig[] = [
  {
    activityType: "PLAN",
    component: ({ content }) => (
      <ul className="card plan" aria-label="Plan">
        {content.steps?.map((step: { title: string; done: boolean }) => (
          <li key={step.title}>
            {step.done ? "☑" : "☐"} {step.title}
          </li>
        ))}
      </ul>
    ),
  },
];
