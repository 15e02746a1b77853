// Which axes a picture shows, and a slider for each of the others.
import { useId } from "react";

interface SlidersProps {
  readonly shape: readonly number[];
  readonly skip: readonly number[];
  readonly index: readonly number[];
  readonly onChange: (index: number[]) => void;
}

export function Sliders({ shape, skip, index, onChange }: SlidersProps): React.JSX.Element {
  const id = useId();
  return (
    <>
      {shape.map((n, axis) =>
        skip.includes(axis) || n < 2 ? null : (
          <label className="slider" key={axis} htmlFor={`${id}-${axis}`}>
            <span>axis {axis}</span>
            <input
              id={`${id}-${axis}`}
              type="range"
              min={0}
              max={n - 1}
              value={index[axis] ?? 0}
              aria-label={`place on axis ${axis}`}
              onKeyDown={(event) => event.stopPropagation()}
              onChange={(event) => onChange(index.map((at, k) => (k === axis ? Number(event.target.value) : at)))}
            />
            <output>
              {index[axis] ?? 0}/{n - 1}
            </output>
          </label>
        ),
      )}
    </>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly shape: readonly number[];
  readonly value: number;
  readonly all?: string;
  readonly onChange: (axis: number) => void;
}

export function AxisChoice({ name, shape, value, all, onChange }: ChoiceProps): React.JSX.Element {
  return (
    <label className="axis-choice">
      {name}{" "}
      <select value={value} onChange={(event) => onChange(Number(event.target.value))}>
        {all && <option value={-1}>{all}</option>}
        {shape.map((n, axis) => (
          <option key={axis} value={axis}>
            axis {axis} ({n})
          </option>
        ))}
      </select>
    </label>
  );
}
