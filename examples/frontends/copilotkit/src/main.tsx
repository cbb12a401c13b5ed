import { lazy } from "react";
import { createRoot } from "react-dom/client";
import { USES_V1 } from "./address";
import "./page.css";

// Each brings its own style sheet, and the two do not go together.
const Page = lazy(() => (USES_V1 ? import("./v1/AppV1") : import("./App")));

createRoot(document.getElementById("root")!).render(<Page />);
