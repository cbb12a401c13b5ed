import { createRoot } from "react-dom/client";
import { App } from "./App";
import "./page.css";

createRoot(document.getElementById("root")!).render(<App />);
