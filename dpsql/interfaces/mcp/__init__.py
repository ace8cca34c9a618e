"""`dpsql mcp`: a server of the Model Context Protocol, by which assistants ask questions within a person's account.

Tools and their limits know no protocol (`tools`, `allowances`, `calls`); only `serving` imports the SDK.
"""
