"""`notifications show|set|test`: events that are sent by mail and by webhook."""

from __future__ import annotations

from paddlecloud.cli.parser import BOOL, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def show(args: Args, context: Context) -> int:
    del args
    _print(context, context.client.notifications())
    return 0


def choose(args: Args, context: Context) -> int:
    wanted: dict[str, Any] = {}
    if args["events"] is not None:
        wanted["events"] = [word for word in args["events"].replace(",", " ").split() if word]
    for name in ("mail", "webhook"):
        if args[name] is not None:
            wanted[name] = args[name]
    if not wanted:
        raise Invalid("notify_nothing_given")
    _print(context, context.client.set_notifications(**wanted))
    return 0


def try_out(args: Args, context: Context) -> int:
    """Exit code 1 if anything did not arrive."""
    del args
    out = context.out
    deliveries = context.client.test_notifications()
    if out.json:
        out.value(deliveries)
    else:
        for each in deliveries:
            word = "ok" if each["ok"] else out.text("notify_undelivered_now", why=each["message"])
            out.line(f"{each['kind']}: {word}")
    return 0 if all(each["ok"] for each in deliveries) else 1


def _print(context: Context, answer: dict[str, Any]) -> None:
    out = context.out
    if out.json:
        out.value(answer)
        return
    view = answer["notifications"]
    out.line(f"events: {','.join(view['events'])}")
    out.line(f"mail: {int(view['mail'])}{' ' + view['email'] if view['email'] else ''}")
    out.line(f"webhook: {view['webhook']}")
    if view["webhook_off"]:
        out.line(f"webhook_off: {view['webhook_off']}")
    if answer.get("webhook_secret"):
        out.line(f"webhook_secret: {answer['webhook_secret']}")
        out.say("notify_secret_once")


EVENTS = ("started", "ended", "failed", "long_queue", "quota_80")

COMMANDS = (
    Command(
        "notifications show",
        show,
        (
            "Show which events you are notified of, and how.",
            "查看通知设置：事件、邮件和 webhook。",
        ),
        examples=("paddlecloud notifications show",),
    ),
    Command(
        "notifications set",
        choose,
        (
            "Choose which events you are notified of, and how. Other values stay as they are.",
            "设置要通知的事件和方式，未给出的保持不变。",
        ),
        options=(
            Option(
                "events", TEXT,
                (
                    'events, with commas between: started, ended, failed, long_queue, quota_80; ""'
                    " is none",
                    '事件，以逗号分隔：started、ended、failed、long_queue、quota_80；"" 表示无',
                ),
                metavar="LIST", offers=EVENTS,
            ),
            Option(
                "mail", BOOL, ("1 sends mail to your address", "1：发送邮件到您的地址"),
                metavar="0|1",
            ),
            Option(
                "webhook", TEXT,
                (
                    'POST to this https address; "" switches it off',
                    '以 POST 发送到该 https 地址；"" 表示取消',
                ),
                metavar="URL",
            ),
        ),
        examples=(
            "paddlecloud notifications set --events=ended,failed --mail=1",
            "paddlecloud notifications set --webhook=https://hooks.example/paddlecloud",
            'paddlecloud notifications set --webhook=""',
        ),
    ),
    Command(
        "notifications test",
        try_out,
        (
            "Send a test by mail and webhook, as chosen, and show the results.",
            "立即用已选择的方式发送测试通知，并显示结果。",
        ),
        examples=("paddlecloud notifications test",),
    ),
)  # fmt: skip
