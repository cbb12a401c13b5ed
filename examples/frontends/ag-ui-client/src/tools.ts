import type { Tool } from "@ag-ui/client";

/** Tools that the page offers to the agent. `run` answers at once; a tool without it is answered by the user. */
export interface PageTool extends Tool {
  run?: (args: any) => string;
}

export const TOOLS: PageTool[] = [
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
