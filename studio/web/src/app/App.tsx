// The whole window: tools above, palette, page and properties side by side, messages below, and what floats on top.
import { ReactFlowProvider, useReactFlow } from "@xyflow/react";
import { useEffect } from "react";
import { Canvas } from "../canvas/Canvas";
import { InputDialog } from "../files/InputDialog";
import { OpenDialog, SaveDialog } from "../files/FilesDialog";
import { Inspector } from "../inspector/Inspector";
import { Palette } from "../palette/Palette";
import { useStore } from "../state/store";
import { Watch } from "../watch/Watch";
import { Windows } from "../windows/Windows";
import { CodeDialog } from "./CodeDialog";
import { Example } from "./Example";
import { Help } from "./Help";
import { Log } from "./Log";
import { listen } from "./shortcuts";
import { Toasts } from "./Toasts";
import { TopBar } from "./TopBar";
import { Welcome } from "./Welcome";
import { WireDialog } from "./WireDialog";

export function App(): React.JSX.Element {
  return (
    <ReactFlowProvider>
      <div className="app">
        <TopBar />
        <Palette />
        <main className="middle">
          <Canvas />
          <Welcome />
          <Example />
          <Panels />
        </main>
        <Inspector />
        <Log />
      </div>
      <Dialogs />
      <Toasts />
      <Keys />
    </ReactFlowProvider>
  );
}

function Keys(): null {
  const flow = useReactFlow();
  useEffect(() => listen(flow), [flow]);
  return null;
}

function Panels(): React.JSX.Element {
  const panels = useStore((s) => s.panels);
  return <>{panels.map((panel) => (panel.kind === "watch" ? <Watch key={panel.key} panel={panel} /> : <Windows key={panel.key} panel={panel} />))}</>;
}

function Dialogs(): React.JSX.Element | null {
  const dialog = useStore((s) => s.dialog);
  switch (dialog?.kind) {
    case "help":
      return <Help />;
    case "code":
      return <CodeDialog />;
    case "wire":
      return <WireDialog key={`${dialog.block}.${dialog.pin}`} block={dialog.block} pin={dialog.pin} />;
    case "files":
      return dialog.mode === "open" ? <OpenDialog /> : <SaveDialog />;
    case "input":
      return <InputDialog source={dialog.source} />;
    default:
      return null;
  }
}
