// A block that holds an array: from a .npy file, from an image, or drawn at random.
import { useState } from "react";
import { focusBlock } from "../app/focus";
import { Dialog } from "../app/Dialog";
import { parseShape, PropertyError } from "../model/grammar";
import type { MadeInput } from "../net/types";
import { placeInput } from "../state/edit";
import { selectedIds } from "../state/flow";
import { openDialog } from "../state/panels";
import { ask } from "../state/sync";
import { FileList, useFolder } from "./FilesDialog";
import { upload } from "./upload";

function use(made: MadeInput | null): void {
  if (!made) return;
  openDialog(null);
  placeInput(made);
  const [id] = selectedIds();
  if (id) focusBlock(id);
}

export function InputDialog({ source }: { source: "npy" | "image" | "random" }): React.JSX.Element {
  if (source === "random") return <RandomDialog />;
  return <FileInput image={source === "image"} />;
}

function FileInput({ image }: { image: boolean }): React.JSX.Element {
  const folder = useFolder();
  const [layout, setLayout] = useState("NHWC");
  const query = image ? `kind=image&layout=${layout}` : "kind=npy";
  return (
    <Dialog title={image ? "Input from an image" : "Input from a .npy file"} wide>
      {image && (
        <label className="inline">
          Layout{" "}
          <select value={layout} onChange={(event) => setLayout(event.target.value)}>
            {["NHWC", "NCHW", "HWC", "NDHWC"].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      <FileList
        folder={folder}
        kinds={[image ? "image" : "array"]}
        onFile={(path) => void ask<MadeInput>("input", { kind: "file", path, ...(image ? { layout } : {}) }).then(use)}
      />
      <label className="upload">
        or choose a file from elsewhere
        <input
          type="file"
          accept={image ? "image/*" : ".npy"}
          onChange={(event) => event.target.files?.[0] && void upload<MadeInput>(query, event.target.files[0]).then(use)}
        />
      </label>
    </Dialog>
  );
}

const TYPES = ["float", "double", "half", "bfloat16", "int", "int64"];
const DISTRIBUTIONS = ["normal", "uniform", "integers", "ramp"];

function RandomDialog(): React.JSX.Element {
  const [shape, setShape] = useState("[1][8][8][1]");
  const [type, setType] = useState("float");
  const [distribution, setDistribution] = useState("normal");
  const [seed, setSeed] = useState("0");
  const [why, setWhy] = useState<string | null>(null);
  function make(): void {
    try {
      const sizes = parseShape(shape);
      if (!/^\d{1,15}$/.test(seed)) throw new PropertyError(`seed ${seed} is not a whole number`, "such as 0");
      void ask<MadeInput>("input", { kind: "random", shape: sizes, type, seed: Number(seed), distribution }).then(use);
    } catch (error) {
      if (!(error instanceof PropertyError)) throw error;
      setWhy(`${error.message}; write ${error.legal}`);
    }
  }
  return (
    <Dialog title="Random input">
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          make();
        }}
      >
        <label>
          Shape
          <input data-first type="text" value={shape} spellCheck={false} onChange={(event) => setShape(event.target.value)} />
        </label>
        <Choice name="Type" value={type} values={TYPES} onChange={setType} />
        <Choice name="Distribution" value={distribution} values={DISTRIBUTIONS} onChange={setDistribution} />
        <label>
          Seed
          <input type="text" inputMode="numeric" value={seed} onChange={(event) => setSeed(event.target.value)} />
        </label>
        {why && (
          <p className="error" role="alert">
            {why}
          </p>
        )}
        <footer>
          <button type="button" onClick={() => openDialog(null)}>
            Cancel
          </button>
          <button type="submit" className="primary">
            Make it
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly value: string;
  readonly values: readonly string[];
  readonly onChange: (value: string) => void;
}

function Choice({ name, value, values, onChange }: ChoiceProps): React.JSX.Element {
  return (
    <label>
      {name}
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {values.map((text) => (
          <option key={text}>{text}</option>
        ))}
      </select>
    </label>
  );
}
