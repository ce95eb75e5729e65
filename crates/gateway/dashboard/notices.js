// Notices about the result of an action, and the dialog that asks for the admin token.

import { Refused, act, dropRefusedToken, keepToken } from "./api.js";
import { h } from "./dom.js";
import { refresh } from "./model.js";

const SHOWN_FOR = 8000;
const ERROR_SHOWN_FOR = 20_000;

export function notify(text, kind = "good") {
  const notice = h("p", { class: `notice ${kind}` }, text);
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), kind === "bad" ? ERROR_SHOWN_FOR : SHOWN_FOR);
}

/** Runs an action of the admin API. Asks for the token and retries if the gateway requires it. */
export async function perform(path, body, done) {
  try {
    const answer = await act(path, body);
    notify(done(answer));
    refresh();
    return answer;
  } catch (error) {
    if (error instanceof Refused && error.status === 401 && await askForToken(dropRefusedToken(error))) {
      return perform(path, body, done);
    }
    notify(error.hint ? `${error.message} – ${error.hint}` : error.message, "bad");
    return null;
  }
}

/** An error in place of data. If the gateway requires the token, a button asks for it and retries. */
export function refusal(error, again) {
  const enter = async () => await askForToken(dropRefusedToken(error)) && again();
  return h("p", { class: "bad" }, error.message, " ",
    error.status === 401 && h("button", { onclick: enter }, "Enter the token"));
}

/** A dialog for the token, with the reason why the last one was refused. Resolves to true if a token was entered. */
export function askForToken(problem = null) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "data-own": true });
    const dialog = h("dialog", { "aria-labelledby": "token-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, "Admin token"),
        problem && h("p", { class: "bad", role: "alert", id: "token-problem" }, problem),
        h("p", {}, "Run ", h("code", {}, "gripfast dashboard"), " on the gateway's machine: it opens this page signed in."),
        h("p", {}, "Or paste the admin token. It is in the file ", h("code", {}, "admin.token"), " of the gateway's state directory, and this tab keeps it until you close it."),
        h("label", { for: "token" }, "Token"), input,
        h("p", { class: "buttons" },
          h("button", { value: "use", class: "main" }, "Use it"),
          h("button", { value: "", formnovalidate: true }, "Cancel"))));
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "use" && input.value !== "";
      if (given) keepToken(input.value);
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
