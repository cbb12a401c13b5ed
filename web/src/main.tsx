import { render } from "preact";
import { App } from "./App";
import { options } from "./options";
import "./styles.css";

if (options.logo !== undefined) {
  const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  icon?.removeAttribute("type");
  if (icon !== null) icon.href = options.logo;
}

render(<App />, document.getElementById("app")!);
