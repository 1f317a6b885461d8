"""Write a welcome message: a handler to start from."""

from typing import Annotated

import msgspec

from edgeq import Context, handler

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class WelcomeInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job has to bring; anything else is refused before it is stored."""

    name: Name


class Welcome(msgspec.Struct, frozen=True):
    text: str


@handler("welcome", description="Write a welcome message", timeout=10, max_retries=3)
async def welcome(ctx: Context, input: WelcomeInput) -> Welcome:
    # A job may run again after a crash: what it does outside should bear to be done twice.
    message = Welcome(f"Welcome, {input.name}!")
    await ctx.log("Wrote a message", characters=len(message.text))
    return message
