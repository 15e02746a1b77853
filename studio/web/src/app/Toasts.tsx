import { dismiss, useStore } from "../state/store";

export function Toasts(): React.JSX.Element {
  const toasts = useStore((s) => s.toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {toasts.map((toast) => (
        <div key={toast.key} className={`toast ${toast.tone}`} onClick={() => dismiss(toast.key)}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}
