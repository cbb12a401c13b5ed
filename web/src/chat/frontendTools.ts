/** The tools that the page offers to the agent and executes itself. */

import type { Json, Tool } from "../protocol/types";

export const COLOURS = ["lavender", "honeydew", "mistyrose", "aliceblue", "default"];

export const TOOLS: Tool[] = [
  {
    name: "set_page_colour",
    description: "Set the background colour of the page.",
    parameters: { type: "object", properties: { colour: { type: "string", enum: COLOURS } }, required: ["colour"] },
  },
  {
    name: "confirm",
    description: "Ask the user to confirm something with yes or no.",
    parameters: { type: "object", properties: { question: { type: "string" } }, required: ["question"] },
  },
  {
    name: "pick_file",
    description: "Let the user pick a file. Its id, name, media type and size are returned.",
    parameters: { type: "object", properties: { purpose: { type: "string" } }, required: ["purpose"] },
  },
];

/** Set the colour of the page. Returns the result for the agent. */
export function setPageColour(args: Json): string {
  const colour = typeof args === "object" && args !== null && !Array.isArray(args) ? args["colour"] : undefined;
  if (typeof colour !== "string" || !COLOURS.includes(colour)) return `unknown colour; use one of ${COLOURS.join(", ")}`;
  document.documentElement.dataset["colour"] = colour;
  return `The page is ${colour} now.`;
}
