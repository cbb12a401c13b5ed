const query = new URLSearchParams(location.search);

/** Where CopilotKit's protocol is served: `aguila serve --copilotkit`, or the Node runtime of runtime/runtime.mjs. */
export const RUNTIME_URL: string =
  query.get("server") ?? import.meta.env.VITE_COPILOTKIT_URL ?? "http://127.0.0.1:8000/copilotkit";

/** `?endpoint=single` sends everything to one address, `?api=v1` shows the older hooks. */
export const USES_SINGLE_ENDPOINT = query.get("endpoint") === "single";
export const USES_V1 = query.get("api") === "v1";

/** `?header=X-Tenant:acme` sends a header of the page's own with every request, as a page of several tenants would. */
const [name, value] = query.get("header")?.split(":") ?? [];
export const HEADERS: Record<string, string> = name && value ? { [name]: value } : {};

/** The thread that the address names. A page without one gets a new thread, and an address to come back to. */
export function threadInAddress(): string {
  const found = new URL(location.href).searchParams.get("thread");
  return found ?? goToThread(crypto.randomUUID());
}

/** Put a thread into the address, so that a reload comes back to it. */
export function goToThread(id: string): string {
  const address = new URL(location.href);
  address.searchParams.set("thread", id);
  history.replaceState(null, "", address);
  return id;
}
