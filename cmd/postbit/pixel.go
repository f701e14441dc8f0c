package main

import (
	"context"
	"errors"
	"fmt"
	"html"

	"postbit/internal/config"
	"postbit/internal/users"
	"postbit/internal/web"
)

type pixelCmd struct {
	Campaign string `required:"" placeholder:"C" help:"Name of the campaign that the opens count for."`
	User     string `required:"" placeholder:"U" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
}

func (pixelCmd) Help() string {
	return `For mails that other services send. Make it when the mail is made: what loads it within two seconds counts as a machine. A
user's opens count once as unique for each campaign and month.

Example:

    postbit pixel --campaign winback --user ada@example.com`
}

type pixelJSON struct {
	Campaign string `json:"campaign"`
	User     string `json:"user"`
	URL      string `json:"url"`
	HTML     string `json:"html"`
}

func (c pixelCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, config.Needs{Mongo: true, Links: true}, func(g *graph) error {
		p, err := (&operations{graph: g}).pixel(ctx, c.Campaign, c.User)
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(p)
		}
		_, err = fmt.Fprintln(g.out, p.URL)
		return err
	})
}

func (o *operations) pixel(ctx context.Context, campaign, ref string) (*pixelJSON, error) {
	now := o.clk.Now()
	id, err := o.users.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if o.urls.Pixel([8]byte{}, id, now) == "" { // whatever the run; before one is made
		return nil, sorted{errors.New("the user's id is over 1,024 bytes and can't be in a token: there is no pixel for this user"), web.ErrInvalid}
	}
	run, err := o.campaigns.ElsewhereRun(ctx, campaign, now)
	if err != nil {
		return nil, err
	}
	url := o.urls.Pixel(run.Short, id, now)
	return &pixelJSON{Campaign: campaign, User: users.FormatID(id), URL: url,
		HTML: fmt.Sprintf(`<img src="%s" width="1" height="1" alt="">`, html.EscapeString(url))}, nil
}

func (o *operations) Pixel(ctx context.Context, campaign, ref string) (any, error) {
	return forWeb(o.pixel(ctx, campaign, ref))
}
