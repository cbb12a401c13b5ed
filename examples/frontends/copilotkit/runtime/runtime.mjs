// CopilotKit's own runtime in Node, in front of Aguila. Only for apps that have one already: `aguila serve --copilotkit`
// answers the page by itself.
import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";

const aguila = process.env.AGUILA_URL ?? "http://127.0.0.1:8000";
const port = Number(process.env.PORT ?? 4000);

const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url: `${aguila}/` }) } });
const listener = createCopilotNodeListener({ runtime, basePath: "/api/copilotkit", cors: true });
createServer(listener).listen(port, "127.0.0.1", () => {
  console.log(`CopilotKit runtime on http://127.0.0.1:${port}/api/copilotkit for ${aguila}`);
});
