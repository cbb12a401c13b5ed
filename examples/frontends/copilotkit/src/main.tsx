import { lazy } from "react";
import { createRoot } from "react-dom/client";
import { USES_V1 } from "./address";
import "./page.css";

// Loaded apart: each brings its own style sheet, and the two do not go together.
const App = lazy(() => import("./App"));
const AppV1 = lazy(() => import("./v1/AppV1"));

createRoot(document.getElementById("root")!).render(USES_V1 ? <AppV1 /> : <App />);
