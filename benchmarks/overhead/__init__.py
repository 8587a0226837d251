"""What endturn adds to a model call, beside the same signals written by hand and other instrumentations.

The real `openai` SDK sends through its HTTP library's mock transport, so no socket or server adds noise to a figure
that is a fraction of a call. The modules:

    situations  the calls: plain, streamed, failing, large, …
    variants    what is installed around them: nothing, the signals by hand, endturn, another instrumentation
    process     runs one group of variants in turns, in a process of its own
    concurrent  the same with many threads or tasks, and the memory of open calls
    startup     what importing costs, and the first call
    groups      which variants are compared, and which rows come of it
    figures     lower quartiles, their spread, goals
    page        docs/overhead.md
"""
