import { toolDefinition } from "@tanstack/ai";
import { clientTools } from "@tanstack/ai-client";

/** A question of the `confirm` tool that the user has not answered yet. */
export interface Confirmation {
  what: string;
  answer: (answer: string) => void;
}

/** Tools that run in the page. `ask` shows a question of the agent to the user. */
export function pageTools(ask: (confirmation: Confirmation) => void) {
  return clientTools(
    toolDefinition({
      name: "set_background",
      description: "Set the background colour of the page",
      inputSchema: {
        type: "object",
        properties: { colour: { type: "string", enum: ["lavender", "honeydew", "white"] } },
        required: ["colour"],
      },
    }).client(async (input) => {
      const { colour } = input as { colour: string };
      document.body.style.backgroundColor = colour;
      return `The background is ${colour}.`;
    }),
    toolDefinition({
      name: "confirm",
      description: "Ask the user to confirm something",
      inputSchema: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
    }).client((input) => new Promise<string>((answer) => ask({ what: (input as { what: string }).what, answer }))),
  );
}
