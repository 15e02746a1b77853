import "@xyflow/react/dist/base.css";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { initialTheme, setTheme } from "./state/panels";
import { connection, guardUnload } from "./state/sync";
import "./styles/tokens.css";
import "./styles/layout.css";
import "./styles/canvas.css";
import "./styles/inspector.css";
import "./styles/panels.css";
import "./styles/watch.css";
import "./styles/windows.css";
import "./styles/dialogs.css";

setTheme(initialTheme());
guardUnload();
connection.open();

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
