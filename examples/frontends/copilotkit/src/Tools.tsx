import { useDefaultRenderTool, useFrontendTool, useHumanInTheLoop, useRenderTool } from "@copilotkit/react-core/v2";
import { z } from "zod";

/** What the page does for the agent, and how calls of the agent's own tools look. */
export function Tools() {
  useFrontendTool({
    name: "set_background",
    description: "Set the background colour of the page",
    parameters: z.object({ colour: z.enum(["lavender", "honeydew", "white"]) }),
    handler: async ({ colour }) => {
      document.body.style.backgroundColor = colour;
      return `The background is ${colour}.`;
    },
  });

  useHumanInTheLoop({
    name: "confirm",
    description: "Ask the user to confirm something",
    parameters: z.object({ what: z.string() }),
    render: ({ args, respond, result }) => (
      <section className="card question" aria-label="Confirmation">
        <p>Confirm: {args.what}</p>
        {respond && <button onClick={() => respond("yes")}>Yes</button>}
        {respond && <button onClick={() => respond("no")}>No</button>}
        {result && <p>Answered: {result}</p>}
      </section>
    ),
  });

  useRenderTool({
    name: "get_weather",
    parameters: z.object({ city: z.string() }),
    render: ({ parameters, status, result }) => (
      <div className="card weather">
        {parameters.city} <strong>{status === "complete" && `${JSON.parse(result).degrees} °C`}</strong>
      </div>
    ),
  });

  useDefaultRenderTool({
    render: ({ name, parameters, result }) => (
      <div className="card">
        <code>
          {name}({JSON.stringify(parameters)})
        </code>
        <div>{result}</div>
      </div>
    ),
  });
  return null;
}
