"""Scripts for shells, made of the words of all command lines."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.cli.completion import Line

Script = Callable[[Sequence["Line"], Mapping[str, str]], str]

_BASH_END = r"""
_moldau_ask() {
    # Names of topics or groups, from the cluster that the line names.
    local index place=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "${COMP_WORDS[index]}" in
            --bootstrap-server|--cluster) place=("${COMP_WORDS[index]}" "${COMP_WORDS[index + 1]}") ;;
        esac
    done
    # Addresses are broken at their colons when a line is split into words: those are taken from the line itself.
    if [[ "$COMP_LINE" =~ --bootstrap-server[=\ ]([^\ ]+) ]]; then
        place=(--bootstrap-server "${BASH_REMATCH[1]}")
    fi
    moldau completion "$1" "${place[@]}" 2>/dev/null
}

_moldau_kind() {
    # Words of a kind of value that begin with the current one.
    case "$1" in
        @topics) COMPREPLY=($(compgen -W "$(_moldau_ask topics)" -- "$2")) ;;
        @groups) COMPREPLY=($(compgen -W "$(_moldau_ask groups)" -- "$2")) ;;
        @files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$2")) ;;
        @directories) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$2")) ;;
        @something|"") COMPREPLY=() ;;
        *) COMPREPLY=($(compgen -W "$1" -- "$2")) ;;
    esac
}

_moldau() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD - 1]}"
    local command="${COMP_WORDS[1]}" action="" index kind actions
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$_moldau_commands --help --version" -- "$current"))
        return
    fi
    actions=" $(_moldau_actions "$command") "
    for ((index = 2; index < COMP_CWORD; index++)); do
        if [[ "$actions" == *" ${COMP_WORDS[index]} "* ]]; then
            action="${COMP_WORDS[index]}"
            break
        fi
    done
    kind="$(_moldau_values "$command $action $before")"
    if [[ -n "$kind" ]]; then
        _moldau_kind "$kind" "$current"
    elif [[ "$current" == -* || ( -n "${actions// /}" && -z "$action" ) ]]; then
        COMPREPLY=($(compgen -W "$(_moldau_words "$command $action")" -- "$current"))
    else
        _moldau_kind "$(_moldau_noun "$command $action")" "$current"
        if [[ -z "$current" && ${#COMPREPLY[@]} -eq 0 ]]; then
            COMPREPLY=($(compgen -W "$(_moldau_words "$command $action")" -- "$current"))
        fi
    fi
}
complete -F _moldau moldau
"""


def bash(lines: Sequence["Line"], purposes: Mapping[str, str]) -> str:
    """The script for bash."""
    values: dict[str, list[str]] = {}
    for line in lines:
        for option, kind in line.values.items():
            values.setdefault(kind, []).append(f"{line.command} {line.action} {option}")
    actions = {name: [line.action for line in lines if line.command == name and line.action] for name in purposes}
    parts = [
        "# Completion of moldau, made by `moldau completion bash`.\n",
        f'_moldau_commands="{" ".join(purposes)}"\n',
        _cases("_moldau_actions", {name: " ".join(found) for name, found in actions.items() if found}),
        _cases("_moldau_words", {f"{line.command} {line.action}": " ".join(line.words) for line in lines}),
        _cases("_moldau_noun", {f"{line.command} {line.action}": line.noun for line in lines if line.noun}),
        _cases("_moldau_values", {'"|"'.join(places): kind for kind, places in values.items()}),
    ]
    return "\n".join(parts) + _BASH_END


def _cases(name: str, answers: Mapping[str, str]) -> str:
    """A function that prints an answer for its argument."""
    rows = "".join(f'        "{key}") echo "{answer}" ;;\n' for key, answer in answers.items())
    return f'{name}() {{\n    case "$1" in\n{rows}    esac\n}}\n'


_ZSH_START = """autoload -U +X compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
"""


def zsh(lines: Sequence["Line"], purposes: Mapping[str, str]) -> str:
    """The script for zsh, which runs the functions of bash."""
    return _ZSH_START + bash(lines, purposes).replace(
        "_moldau() {\n", "_moldau() {\n    setopt localoptions bash_rematch\n"
    )


def fish(lines: Sequence["Line"], purposes: Mapping[str, str]) -> str:
    """The script for fish."""
    out = ["# Completion of moldau, made by `moldau completion fish`.", _FISH_ASK, "complete -c moldau -f"]
    for name, purpose in purposes.items():
        out.append(f"complete -c moldau -n __fish_use_subcommand -a {name} -d '{_quoted(purpose)}'")
    for line in lines:
        actions = " ".join(each.action for each in lines if each.command == line.command and each.action)
        seen = f"__fish_seen_subcommand_from {line.command}"
        if line.action:
            seen += f"; and __fish_seen_subcommand_from {line.action}"
        elif actions:
            seen += f"; and not __fish_seen_subcommand_from {actions}"
            out.append(f"complete -c moldau -n '{seen}' -a '{actions}'")
        if line.noun:
            out.append(f"complete -c moldau -n '{seen}' {_fish_value(line.noun)}")
        for word in line.words:
            if word.startswith("--"):
                value = f" {_fish_value(line.values[word], '-x ')}" if word in line.values else ""
                out.append(f"complete -c moldau -n '{seen}' -l {word[2:]}{value}")
    return "\n".join(out) + "\n"


_FISH_ASK = """function __moldau_ask
    set -l place
    set -l words (commandline -opc)
    for index in (seq (count $words))
        if contains -- $words[$index] --bootstrap-server --cluster
            set place $words[$index] $words[(math $index + 1)]
        end
    end
    moldau completion $argv[1] $place 2>/dev/null
end"""


def _fish_value(kind: str, exclusive: str = "") -> str:
    """Arguments of `complete` for a kind of value; `exclusive` says that files are none."""
    if kind in ("@topics", "@groups"):
        return f"{exclusive}-a '(__moldau_ask {kind[1:]})'"
    if kind in ("@files", "@directories"):
        return "-F" if not exclusive else "-r -F"
    return exclusive.strip() if kind == "@something" else f"{exclusive}-a '{_quoted(kind)}'"


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")


SCRIPTS: Mapping[str, Script] = {"bash": bash, "zsh": zsh, "fish": fish}
