"""`gen_token`: get a pair of keys and keep it in client.conf.

A team server mails the pair, and the person pastes it here; it is tried before it is kept, so a
file that works is never replaced by one that does not. The embedded server hands it out at once.
The lines of the dialogue are those of the original documents, which scripts and people know.
"""

from __future__ import annotations

import os
import sys

from paddlecloud.cli.parser import TEXT, Command, Option
from paddlecloud.client.config.ini_file import write_main
from paddlecloud.client.config.template import documented_file
from paddlecloud.model.email_address import canonical
from paddlecloud.model.errors import Invalid, Refused, Unauthenticated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

    Keys = tuple[str, str, str]

TRIES = 3
NAME = "gen_token"


def run(args: Args, context: Context) -> int:
    if not args["email"]:
        raise Invalid("email_missing")
    canonical(args["email"])
    if context.config.embedded:  # it belongs to the caller, and hands the pair out at once
        _print(context, "create_token...")
        made = context.client.create_token(name=NAME)
        user_id, ak, sk = made["user_id"], made["ak"], made["sk"]
    else:
        user_id, ak, sk = _mailed(args["email"], context)
    config = context.config
    if config.embedded:
        template = documented_file()
    else:
        # One in a file is relative to that file, and this one is about to be in a file.
        ca_file = os.path.abspath(config.ca_file) if config.ca_file else ""  # noqa: PTH100 - as in resolve
        template = documented_file(config.host, str(config.port), config.scheme, ca_file)
    write_main(config.save_path, user_id, ak, sk, template)
    _print(context, "create_token done")
    if config.values["main.ak"].rank > 1:
        context.out.say("gen_token_shadowed", origin=config.values["main.ak"].origin)
    if context.out.json:
        context.out.value({"user_id": user_id, "ak": ak, "path": config.save_path})
    elif context.out.errors_on_terminal:
        context.out.say("gen_token_kept", user=user_id, path=config.save_path)
    return 0


def _mailed(email: str, context: Context) -> Keys:
    _print(context, "create_token...")
    answer = context.client.gen_token(email)
    if context.out.errors_on_terminal:
        context.out.say("gen_token_mailed", email=answer["email"])
    for tries_left in reversed(range(TRIES)):
        ak, sk = _pasted(context, "ak"), _pasted(context, "sk")
        try:
            return _owner(context, ak, sk), ak, sk
        except (Unauthenticated, Invalid) as error:
            if not tries_left:
                raise
            if error.code == "auth_unknown_key":  # whose advice is to get new keys
                context.out.say("gen_token_unknown", ak=error.params.get("ak", "?"))
            else:
                context.out.say("gen_token_again", reason=error.text(context.out.lang))
    raise AssertionError("the last try returns or raises")


def _owner(context: Context, ak: str, sk: str) -> str:
    """Whose keys these are, by the word of the server."""
    from copy import copy  # noqa: PLC0415 - only this command needs it

    from paddlecloud.client.sdk import Client  # noqa: PLC0415 - only this command needs it

    if not _is_key(ak) or not _is_key(sk):
        raise Unauthenticated("auth_unknown_key", ak=ak[:40] if ak.isprintable() else "?")
    config = copy(context.config)
    config.ak, config.sk = ak, sk
    with Client(config) as client:
        return str(client.whoami()["user_id"])


def _pasted(context: Context, name: str) -> str:
    """One line that the person pastes; the whole line of the mail will do too, and an empty one
    means nothing yet."""
    prompt = f"Paste your {name} here:"
    hidden = name == "sk" and sys.stdin.isatty()
    text = ""
    while not text:
        text = _read(context, prompt, hidden=hidden).strip()
    if text.lower().startswith((f"{name}:", f"{name}=", f"{name} ")):
        text = text[len(name) :].lstrip(" :=")
    return text


def _read(context: Context, prompt: str, *, hidden: bool) -> str:
    from getpass import getpass  # noqa: PLC0415 - only this command needs it

    # The dialogue is the answer, unless that is to be JSON.
    stream = sys.stderr if context.out.json else sys.stdout
    try:
        if hidden:
            return getpass(prompt, stream=stream)
        stream.write(prompt)
        stream.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            stream.write("\n")  # input from a pipe is not echoed, nor is its line end
        if not line:
            raise EOFError
    except EOFError:
        raise Refused("keys_not_pasted", path=context.config.save_path) from None
    return line


def _is_key(text: str) -> bool:
    """Whether it can be signed with: `/` separates the parts of a signature."""
    return text.isascii() and text.isprintable() and text != "" and not set(text) & {" ", "/"}


def _print(context: Context, line: str) -> None:
    if context.out.json:
        context.out.message(line)
    else:
        context.out.draw(line + "\n")


COMMANDS = (
    Command(
        "gen_token",
        run,
        (
            "Get a pair of keys and keep it in client.conf; if there is none, one is made with all "
            "sections. A team server mails the pair to your address and it is pasted here; the "
            "embedded server hands it out at once.",
            "申请一对密钥并写入 client.conf；没有该文件时生成包含全部配置项的文件。"
            "团队服务器会将密钥发到邮箱，粘贴后生效；本机服务器直接生成。",
        ),
        options=(
            Option(
                "email", TEXT, ("your mail address", "您的邮箱地址"), metavar="ADDRESS",
                required=True,
            ),
        ),
        examples=("paddlecloud gen_token --email=your_name@163.com",),
    ),
)  # fmt: skip
