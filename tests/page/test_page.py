"""The page in a real browser: what it shows, how it lives, what it does not let through."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.client import http_client
from tests.journey.provider import Provider, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.browser import a_while, browsing, first_paint, opened, until
from tests.page.talk import (
    SYSTEM,
    Messages,
    answers,
    grow,
    history,
    post,
    put,
    silent,
    step,
    talk,
)

TOKEN = "an-admin-token"

# One browser serves all tests here, so all of them run in one loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")
fixture = pytest_asyncio.fixture(loop_scope="module")


@fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing(answers) as opened_:
        yield opened_


@fixture
async def proxy(provider: Provider) -> AsyncIterator[Running]:
    async with running(settings_for(provider.url)) as opened_:
        yield opened_


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    async with browsing() as opened_:
        yield opened_


def at(proxy: Running, id: str = "") -> str:
    return f"{proxy.admin}/lethe/ui" + (f"/{id}" if id else "")


async def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in await page.locator(selector).all_inner_texts()]


# The list


async def test_conversations_appear_as_they_live(browser: Any, proxy: Running) -> None:
    first = await grow(proxy, 2, "One.")

    async with opened(browser, at(proxy), waits=True) as (page, seen):
        assert [first[:10]] == await texts(page, "#rows th a")
        begun = (await post(proxy, history(0, "Two."))).headers["x-lethe-conversation"]
        await a_while(page)
        await page.locator(f'#rows tr[data-id="{begun}"]').wait_for()
        second = await talk(proxy, [history(1, "Two.")])
        await a_while(page)
        await page.locator(f'#rows tr[data-id="{second}"]').wait_for()

        assert [second[:10], first[:10]] == await texts(page, "#rows th a")
        assert ["2", "3"] == await texts(page, "#rows .c-turns")
        assert ["60 %", "60 %"] == await texts(page, "#rows .c-hit")
        assert "Live" == await page.locator("#live").inner_text()
        assert [] == seen.errors
        assert all(address.startswith(proxy.admin) for address in seen.asked)


async def test_an_empty_page_says_what_to_do_and_fills_by_itself(
    browser: Any, proxy: Running
) -> None:
    async with opened(browser, at(proxy), waits=True) as (page, seen):
        assert "No conversations yet" in await page.locator("main").inner_text()
        assert "OPENAI_BASE_URL=" in await page.locator("main").inner_text()
        id = await grow(proxy, 1)
        await a_while(page)
        await page.locator(f'#rows tr[data-id="{id}"]').wait_for()
        assert [] == seen.errors


async def test_the_keyboard_is_enough(browser: Any, proxy: Running) -> None:
    ids = [await grow(proxy, 1, f"Goal {n}.", model=f"model-{n}") for n in range(3)]
    focused = "document.activeElement.getAttribute('href')"

    async with opened(browser, at(proxy)) as (page, _):
        press = page.keyboard.press
        await press("j")
        assert f"/lethe/ui/{ids[2]}" == await page.evaluate(focused)
        await press("j")
        await press("j")
        await press("k")
        assert f"/lethe/ui/{ids[1]}" == await page.evaluate(focused)

        await press("/")
        await page.keyboard.type("model-0")
        assert [ids[0][:10]] == await texts(page, "#rows tr:not([hidden]) th a")
        assert "1 of 3" == await page.locator("#count").inner_text()
        await press("Escape")
        assert 3 == await page.locator("#rows tr:not([hidden])").count()

        await press("?")
        assert await page.locator("#help").is_visible()
        await press("Escape")
        assert not await page.locator("#help").is_visible()

        await press("j")
        await press("Enter")
        await page.wait_for_url("**/lethe/ui/" + ids[2])
        await press("j")
        assert "t1" == await page.evaluate("document.activeElement.id")
        await press("Escape")
        await page.wait_for_url("**/lethe/ui")


async def test_a_filter_that_nothing_matches_says_so(browser: Any, proxy: Running) -> None:
    await grow(proxy, 1)

    async with opened(browser, at(proxy)) as (page, _):
        await page.locator("#filter").fill("nothing like it")
        assert await page.locator("#nothing").is_visible()
        await page.locator("#filter-clear").click()
        assert not await page.locator("#nothing").is_visible()


async def test_a_thousand_conversations_are_there_soon_after_the_first_paint(
    browser: Any, proxy: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    put(proxy, 1_000)

    async with opened(browser, at(proxy)) as (page, seen):
        paint = await first_paint(page)
        await until(page, "document.querySelectorAll('#rows tr').length === 1000")
        await page.locator("#filter").fill("model-3 key-5")
        found = await page.locator("#rows tr:not([hidden])").count()

        assert 13 == found
        assert [] == seen.errors
    with capsys.disabled():
        print(f"\nthe page, 1,000 conversations: first paint after {paint:.0f} ms")


# One conversation


async def test_what_was_dropped_is_struck_on_the_providers_side_only(
    browser: Any, proxy: Running
) -> None:
    await talk(proxy, [history(0), history(1)], x_lethe_policy="keep")
    id = await talk(proxy, [history(2), history(3)], x_lethe_policy="drop")

    async with opened(browser, at(proxy, id)) as (page, seen):
        assert ["Thought 1.", "Thought 2."] == await texts(
            page, ".side.left .reasoning.dropped del"
        )
        assert ["Thought 0."] == await texts(page, ".side.left .reasoning.kept .text")
        assert ["Thought 0.", "Thought 1.", "Thought 2."] == await texts(
            page, ".side.came .reasoning .text"
        )
        assert 0 == await page.locator(".side.came del").count()
        struck = page.locator(".side.left del").first
        assert "line-through" in await struck.evaluate(
            "(e) => getComputedStyle(e).textDecorationLine"
        )
        assert [] == seen.errors


async def test_each_turn_has_a_bar_and_its_numbers(browser: Any, proxy: Running) -> None:
    id = await grow(proxy, 3, x_lethe_policy="drop")

    async with opened(browser, at(proxy, id)) as (page, _):
        assert 4 == await page.locator(".plot .bar").count()
        assert 4 == await page.locator(".plot rect.cached").count()
        assert ["Cached", "New", "Reasoning dropped, estimated"] == await texts(page, ".legend li")
        heights = [
            (await page.locator(f".plot .bar[data-turn='1'] rect.{kind}").bounding_box())["height"]
            for kind in ("cached", "new")
        ]
        assert 1.5 == pytest.approx(heights[0] / heights[1], rel=0.02)
        row = (await page.locator("#t2").inner_text()).split()
        assert ["100", "60", "–", "40", "60", "%"] == row[row.index("extended") + 1 :][:6]
        summary = await page.locator("#chart-summary").inner_text()
        assert "4 turns. Input went from 100 to 100 tokens. 60 % of it" in summary
        named = await page.locator(".plot").get_attribute("aria-labelledby")
        assert "chart-summary" == named
        await page.locator(".bar[data-turn='3']").hover()
        assert "Turn 3 · extended" in await page.locator("#readout").inner_text()


async def test_a_finding_stands_where_it_happened(browser: Any, proxy: Running) -> None:
    noon = SYSTEM + " It is noon."
    turns = [history(1), history(2), history(2, system=noon), history(3, system=noon)]
    id = await talk(proxy, turns)

    async with opened(browser, at(proxy, id)) as (page, _):
        finding = page.locator(".finding.break")
        said = await finding.inner_text()
        for part in ("The system prompt changed", "system_changed", "client", "tokens rebuilt"):
            assert part in said
        assert "3" == await page.locator("tr.found", has=finding).get_attribute("data-turn")
        assert "t3" == await page.locator("tr.found", has=finding).evaluate(
            "(row) => row.previousElementSibling.id"
        )
        assert 1 == await page.locator(".bar[data-turn='3'] .spot.break").count()
        await page.keyboard.press("n")
        assert await finding.evaluate("(e) => e === document.activeElement")
        await finding.locator(".to-message").click()
        assert "m0" == await page.evaluate("document.activeElement.id")


async def test_what_is_unknown_is_a_dash_and_no_zero(browser: Any) -> None:
    async with providing(silent) as provider, running(settings_for(provider.url)) as proxy:
        id = await grow(proxy, 1)
        async with opened(browser, at(proxy)) as (page, _):
            assert ["–"] == await texts(page, "#rows .c-hit")
        async with opened(browser, at(proxy, id)) as (page, _):
            row = (await page.locator("#t2").inner_text()).split()
            assert ["100", "–", "–", "–", "–"] == row[row.index("extended") + 1 :][:5]
            assert ["Input, cache unknown"] == (await texts(page, ".legend li"))[:1]
            assert "is unknown" in await page.locator("#chart-summary").inner_text()


async def test_a_new_turn_comes_in_by_itself(browser: Any, proxy: Running) -> None:
    id = await grow(proxy, 2)

    async with opened(browser, at(proxy, id), waits=True) as (page, seen):
        await post(proxy, history(3))
        await a_while(page)
        await page.locator("#t4").wait_for()
        assert 4 == await page.locator(".plot .bar").count()
        await page.locator("#m7").wait_for()
        assert "Step 2." in await page.locator("#m6").inner_text()
        assert [] == seen.errors


async def test_the_first_turn_is_followed_to_the_conversation_that_it_becomes(
    browser: Any, proxy: Running
) -> None:
    begun = (await post(proxy, history(0))).headers["x-lethe-conversation"]

    async with opened(browser, at(proxy, begun), waits=True) as (page, _):
        id = await talk(proxy, [history(1)])
        await a_while(page)
        await page.wait_for_url(f"**/lethe/ui/{id}")
        assert 2 == await page.locator("#turns .turn").count()


async def test_five_hundred_turns_are_folded_and_can_be_unfolded(
    browser: Any, proxy: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    put(proxy, 1, turns=500)
    (it,) = await proxy.doors.ledger.conversations(None, 1)

    async with opened(browser, at(proxy, it.id)) as (page, seen):
        paint = await first_paint(page)
        assert 500 == await page.locator(".plot .bar").count()
        assert 10 == await page.locator("#turns .turn").count()
        assert "1–490" in await page.locator(".unfold").inner_text()
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.locator("#t250").wait_for(state="attached")
        assert 500 == await page.locator("#turns .turn").count()
        assert [] == seen.errors
    with capsys.disabled():
        print(f"\nthe page, 500 turns: first paint after {paint:.0f} ms")


async def test_a_bar_leads_to_its_turn_even_where_that_is_folded(
    browser: Any, proxy: Running
) -> None:
    put(proxy, 1, turns=200)
    (it,) = await proxy.doors.ledger.conversations(None, 1)

    async with opened(browser, at(proxy, it.id)) as (page, _):
        await page.locator(".bar[data-turn='77']").click()
        await until(page, "document.activeElement.id === 't77'")

        assert await page.locator("#t77").is_visible()


async def test_many_messages_come_as_they_are_scrolled_to(browser: Any, proxy: Running) -> None:
    id = await talk(proxy, [history(60)])

    async with opened(browser, at(proxy, id)) as (page, seen):
        at_first = await page.locator(".message").count()
        for _ in range(60):
            await page.mouse.wheel(0, 4_000)
            if await page.locator("#m121").count():
                break
            await page.wait_for_timeout(50)
        await page.locator("#m121").wait_for(state="attached")

        assert at_first < 122 <= await page.locator(".message").count()
        assert [] == seen.errors


async def test_a_long_text_is_cut_and_opened_in_place(browser: Any, proxy: Running) -> None:
    id = await talk(proxy, [[*history(0), *step(0, result="x" * 9_000 + "END")]])

    async with opened(browser, at(proxy, id)) as (page, _):
        message = page.locator("#m3")
        assert "END" not in await message.inner_text()
        await message.locator("a.whole").click()
        await until(page, "document.querySelector('#m3').innerText.includes('END')")


async def test_forgetting_asks_first(browser: Any, proxy: Running) -> None:
    id = await grow(proxy, 1)

    async with opened(browser, at(proxy, id)) as (page, _):
        await page.locator("#forget").click()
        await page.keyboard.press("Escape")
        assert await proxy.doors.ledger.conversation(id) is not None
        await page.locator("#forget").click()
        await page.locator("#forget-yes").click()
        await page.wait_for_url("**/lethe/ui")
        assert await proxy.doors.ledger.conversation(id) is None


async def test_under_digests_no_text_is_shown_and_the_page_says_so(
    browser: Any, provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text('[ledger]\nhistory = "digests"\n')
    async with running(settings_for(provider.url, file)) as proxy:
        id = await grow(proxy, 2)
        async with opened(browser, at(proxy, id)) as (page, _):
            said = await page.locator("main").inner_text()

    assert "keeps digests only" in said
    assert 2 == said.count("B reasoning")
    assert "Thought" not in said
    assert SYSTEM not in said


# What it does not let through

HOSTILE = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "'><svg/onload=window.pwned=1>",
    "</title></textarea></style><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202e\u2066gnp.exe\x00\x1b[31m \ud83d",
    "&lt;b&gt; &#60;script&#62;",
    "javascript:window.pwned=1//",
)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_text_is_text_wherever_it_stands(browser: Any, proxy: Running, hostile: str) -> None:
    call = {"id": hostile, "type": "function", "function": {"name": hostile, "arguments": hostile}}
    rows: Messages = [
        {"role": "system", "content": hostile},
        {"role": "user", "content": [{"type": "text", "text": hostile}, {"type": hostile}]},
        {"role": "assistant", "content": hostile, "reasoning_content": hostile,
         "tool_calls": [call],
         hostile: hostile},
        {"role": "tool", "tool_call_id": hostile, "content": hostile},
    ]  # fmt: skip
    edited: Messages = [{"role": "system", "content": hostile + "!"}, *rows[1:]]
    id = await talk(
        proxy, [rows, edited], model=hostile, x_lethe_task="<img src=x onerror=alert(1)>"
    )

    async with opened(browser, at(proxy)) as (page, seen):
        for url in (at(proxy), at(proxy, id), at(proxy, id) + "/messages/0"):
            await page.goto(url)
            await page.wait_for_timeout(150)
            assert await page.evaluate("window.pwned === undefined")
            assert 0 == await page.locator("main :is(script, img, iframe, style)").count()
            assert ([], []) == (seen.dialogs, seen.errors)
            if url == at(proxy, id) and hostile.isprintable():
                assert hostile in await page.locator("#m1").inner_text()


async def test_a_script_that_got_into_the_page_would_not_run(browser: Any, proxy: Running) -> None:
    await grow(proxy, 1)

    async with opened(browser, at(proxy)) as (page, seen):
        await page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.pwned = 1";
                document.body.append(script);
                const image = document.createElement("div");
                image.innerHTML = "<img src='//example.invalid/x' onerror='window.pwned = 1'>";
                document.body.append(image);
            }"""
        )
        await page.wait_for_timeout(200)
        assert await page.evaluate("window.pwned === undefined")
        assert any("Content Security Policy" in error for error in seen.errors)


async def test_nothing_is_inline_and_nothing_comes_from_elsewhere(proxy: Running) -> None:
    id = await grow(proxy, 2)

    async with http_client() as client:
        for url in (at(proxy), at(proxy, id), at(proxy, "00" * 16), at(proxy, id) + "/messages/0"):
            reply = await client.get(url)
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "nosniff" == reply.headers["x-content-type-options"]
            assert "no-store" == reply.headers["cache-control"]
            assert not re.search(r"\s(on\w+|style)\s*=", reply.text)
            assert not re.search(r"<script(?![^>]* src=)", reply.text)
            assert not re.search(r"(src|href)=\"(?!/lethe/ui|#)", reply.text)


# Who may look


async def test_the_page_wants_the_token_once(browser: Any, provider: Provider) -> None:
    settings = settings_for(provider.url, environ={"LETHE_ADMIN_TOKEN": TOKEN})
    async with running(settings) as proxy:
        one = await grow(proxy, 1, "One.", key="sk-one")
        two = await grow(proxy, 1, "Two.", key="sk-two")
        async with opened(browser, at(proxy, one)) as (page, _):
            assert "Sign in" in await page.locator("h1").inner_text()
            await page.locator("#secret").fill("sk-two")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/lethe/ui")
            assert [two[:10]] == await texts(page, "#rows th a")
            assert "one client key" in await page.locator(".notice").inner_text()
            await page.goto(at(proxy, one))
            assert "not kept" in await page.locator("h2").first.inner_text()
            await page.get_by_role("button", name="Sign out").click()
            await page.locator("#secret").fill(TOKEN)
            await page.keyboard.press("Enter")
            await page.locator("#rows").wait_for()
            assert [two[:10], one[:10]] == await texts(page, "#rows th a")
            assert "" == await page.evaluate("document.cookie")


async def test_a_key_that_virtual_keys_do_not_know_does_not_get_in(
    provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text(
        f'virtual_keys = true\n[[upstream]]\nurl = "{provider.url}"\napi_key_env = "UP"\n'
        '[[key]]\nalias = "a"\nkey_env = "KEY"\nvirtual = true\n'
    )
    environ = {"LETHE_ADMIN_TOKEN": TOKEN, "UP": "sk-up", "KEY": "sk-mine"}
    async with running(settings_for(provider.url, file, environ=environ)) as proxy:
        async with http_client() as client:
            url = f"{proxy.admin}/lethe/ui/sign-in"
            refused = await client.post(url, data={"secret": "sk-other"})
            empty = await client.post(url, data={"other": "x"})
            let_in = await client.post(url, data={"secret": "sk-mine"})

    assert (401, 401, 303) == (refused.status_code, empty.status_code, let_in.status_code)
    assert "neither the admin token nor a key" in refused.text
    assert {"httponly", "samesite=strict"} <= set(let_in.headers["set-cookie"].lower().split("; "))


# How it looks


@pytest.mark.parametrize("view", ["list", "conversation"])
async def test_it_follows_light_and_dark(browser: Any, proxy: Running, view: str) -> None:
    id = await grow(proxy, 2)
    url = at(proxy, id if view == "conversation" else "")
    script = "getComputedStyle(document.body).backgroundColor"

    grounds = []
    for scheme in ("light", "dark"):
        async with opened(browser, url, color_scheme=scheme) as (page, _):
            grounds.append(await page.evaluate(script))

    assert ["rgb(251, 251, 250)", "rgb(19, 21, 23)"] == grounds


@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_it_fits_any_window(browser: Any, proxy: Running, width: int) -> None:
    noon = SYSTEM + " It is noon. " + "long" * 200
    turns = [history(1), history(2), history(2, system=noon)]
    id = await talk(proxy, turns, model="a-model-with-a-very-long-name-that-does-not-fit" * 2)
    window = {"width": width, "height": 800}

    for url in (at(proxy), at(proxy, id)):
        async with opened(browser, url, viewport=window) as (page, _):
            assert width >= await page.evaluate("document.documentElement.scrollWidth")


async def test_it_can_be_read_without_its_script(browser: Any, proxy: Running) -> None:
    put(proxy, 130)
    id = await talk(proxy, [history(0), history(30)], x_lethe_policy="drop")

    async with opened(browser, at(proxy), java_script_enabled=False) as (page, _):
        assert 50 == await page.locator("#rows tr").count()
        await page.get_by_role("link", name="Older conversations").click()
        assert 50 == await page.locator("#rows tr").count()
        await page.goto(at(proxy, id))
        assert "Thought 0." in await page.locator(".side.left del").first.inner_text()
        await page.locator("a.piece").click()
        assert ["message 20"] == (await texts(page, ".message header .number"))[:1]


async def test_everything_that_can_be_used_has_a_name(browser: Any, proxy: Running) -> None:
    id = await grow(proxy, 2)
    script = """() => [...document.querySelectorAll("a, button, input")]
        .filter((e) => e.offsetParent !== null)
        .filter((e) => !(e.innerText || e.ariaLabel || e.labels?.[0]?.innerText || "").trim())
        .map((e) => e.outerHTML)"""

    for url in (at(proxy), at(proxy, id)):
        async with opened(browser, url) as (page, _):
            assert [] == await page.evaluate(script)
            assert 1 == await page.locator("h1").count()
            assert 1 == await page.locator("main").count()
            assert "en" == await page.locator("html").get_attribute("lang")
