"""Faults of the server: who gets in, who is charged, what a catalogue query reaches, what a client may send."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "unknown-user-let-in",
        "dpsql.server.protocol.scram:Proof.final",
        "return told if proved and self._known else None",
        "return told if proved or not self._known else None",
        "whoever names no user is let in",
        "tests/server/test_conversation.py::test_the_password_of_a_known_user_alone_opens_the_door",
    ),
    Fault(
        "password-not-proved",
        "dpsql.server.protocol.scram:Proof.final",
        "return told if proved and self._known else None",
        "return told if self._known else None",
        "any password opens the door of a known user",
        "tests/server/test_conversation.py::test_the_password_of_a_known_user_alone_opens_the_door",
    ),
    Fault(
        "queries-before-the-login",
        "dpsql.server.protocol.conversation:Conversation._handled",
        "self._phase != 'ready'",
        "self._phase == 'proof'",
        "a client asks before it has proved who it is",
        "tests/server/test_conversation.py::test_nobody_asks_before_the_login",
    ),
    Fault(
        "plain-bytes-taken-for-encrypted",
        "dpsql.server.protocol.conversation:Conversation._first",
        "if len(self._buffer):\n    raise ProtocolError('received unencrypted data after SSL request')",
        "",
        "who sits between client and server puts statements before the encrypted ones",
        "tests/server/test_conversation.py::test_what_comes_unencrypted_with_a_request_for_tls_is_not_taken_for_encrypted",
    ),
    Fault(
        "tls-left-out",
        "dpsql.server.protocol.conversation:Conversation._started",
        "self._encrypted and not self._secure",
        "self._encrypted and self._secure",
        "a client that asks for no TLS gets in without it",
        "tests/server/test_conversation.py::test_tls_is_asked_for_offered_and_required",
    ),
    Fault(
        "open-to-the-network",
        "dpsql.server.listener:Listener.start",
        "not is_local(host) and self.tls is None and not in_the_clear",
        "not is_local(host) and self.tls is None and in_the_clear",
        "answers cross a network unencrypted, and nobody said that they may",
        "tests/server/test_attacks.py::test_beyond_this_machine_there_is_no_door_without_tls",
    ),
    Fault(
        "functions-of-catalogue-queries-unlisted",
        "dpsql.sql.catalogue.rewrite:_Rewriting._call",
        "_refuse(f'the function {name} is not known of catalogue queries')",
        "return node",
        "a catalogue query calls any function of the engine",
        "tests/server/test_catalogue.py::test_nothing_else_is_reached_through_a_catalogue_query",
    ),
    Fault(
        "data-named-in-a-catalogue-query",
        "dpsql.sql.catalogue.rewrite:catalogue_query",
        "not all(_schema_of(table, declared) for table in read)",
        "read and not any(_schema_of(table, declared) for table in read)",
        "a query that also names data is taken for one of the catalogue",
        "tests/server/test_catalogue.py::test_what_is_no_catalogue_query_goes_to_the_engine",
    ),
    Fault(
        "auditor-asks",
        "dpsql.server.users:Role.asks",
        "return self is not Role.auditor",
        "return True",
        "who may only look at budgets spends them",
        "tests/server/test_clients.py::test_an_auditor_sees_all_budgets_and_asks_nothing",
    ),
    Fault(
        "cancel-without-a-key",
        "dpsql.server.listener:Listener.cancel",
        "client is not None and hmac.compare_digest(expected, key)",
        "client is not None",
        "anybody cancels what others have paid for",
        "tests/server/test_attacks.py::test_a_cancel_request_without_the_key_cancels_nothing",
    ),
    Fault(
        "two-names-of-one-account",
        "dpsql.server.users:UserStore.add",
        "account_name(name)",
        "name",
        "two users who spend one analyst's budget, or one who has two logins",
        "tests/server/test_users.py::test_two_names_of_one_account_are_not_two_users",
    ),
    Fault(
        "portal-run-again",
        "dpsql.server.protocol.conversation:Conversation._execute",
        "portal.answer is not None",
        "portal.answer is not None and rows == 0",
        "each part of an answer that is fetched is a query of its own",
        "tests/server/test_conversation.py::test_a_portal_is_run_once_however_often_it_is_executed",
    ),
)
