import type { ReactActivityMessageRenderer } from "@copilotkit/react-core/v2";
import { z } from "zod";

const planSchema = z.object({ steps: z.array(z.object({ title: z.string(), done: z.boolean() })) });

/** Draws activities of the type PLAN. */
export const planRenderer: ReactActivityMessageRenderer<z.infer<typeof planSchema>> = {
  activityType: "PLAN",
  content: planSchema,
  render: ({ content }) => (
    <ul className="card plan" aria-label="Plan">
      {content.steps.map((step) => (
        <li key={step.title}>
          {step.done ? "☑" : "☐"} {step.title}
        </li>
      ))}
    </ul>
  ),
};
